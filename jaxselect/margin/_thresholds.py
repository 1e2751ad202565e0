"""Thresholds of the max-margin problem: multiples and powers of the rounding eps.

"Derived" says that a number follows from the arithmetic; "tuned", on which problems it
was chosen. The 250 problems are those of `tests/margin/pair_problems`.
"""

# The statuses of `max_margin`, decided by what is measured on the tokens.

# Largest gap and infeasibility of a solved problem: 9e-13 in double, 5e-4 in single
# precision. Tuned on the benchmark, where 512 tokens end at 300 roundings, and on
# single precision with tokens far longer along one axis, which ends at 2,000.
SOLVED = 4096
# Where duals cancel, ψ = Σ λ ‖D‖ / ‖p‖ ≫ 1, the gap may be ALLOWED eps ψ. Derived: p
# stays feasible under the rounding of its entries if it aims GUARD eps ‖p‖ ‖D‖ too far,
# which costs a gap of 2 GUARD eps ψ; one rounding of the step to it, one of the duals.
ALLOWED = 12
# But no more than eps^0.6, 4e-10 in double precision, so that p is within the root of
# that, 2e-5, of p_mm. In single precision it is less than 4096 roundings, and allows
# nothing.
LARGEST_GAP = 0.6
# Largest ‖Σ λ D‖ / Σ λ ‖D‖ of duals that refute a problem. Derived: storing the duals
# loses half a rounding, solving for them some; and every p that keeps the pairs apart
# would have ‖p‖ Σ λ ‖D‖ > 1/(64 eps), a margin that rounding hides.
REFUTED = 64
# Bound on the rounding of a sum, in roundings of its longest term: where it might turn
# the decision, the sum is taken again with more digits. Tuned: sums over 600 tokens or
# axes stay below 4.
SUM = 16
# Distance from the margin of an active pair, in roundings of the longest score. Tuned
# on the 250 problems: turned and rescaled they keep their active pairs.
ACTIVE = 1000
# Tokens closer together than this many roundings of their mean are one token. Derived:
# centring rounds twice, over some ten axes.
EQUAL = 16

# Where a method ends; none of these is taken for a proof.

# Relative gap at which the interior point ends. Derived: its formula rounds four times.
CLOSED = 4
# It also ends at ‖x‖² = eps^1.5. Derived: x is then 1e-12 and less than rounding leaves
# of a sum of tokens of size one.
ZERO = 1.5
# At ‖x‖² < eps^0.5 the hull may hold the origin. Tuned on random contradictions.
SEEMS_ZERO = 0.5
# Below a gap of eps^0.5 an iterate that does not halve it is the last. Derived: from
# there Newton's method squares the gap, unless rounding forbids it.
SETTLED = 0.5
# Gap at which the equations on the strong pairs are solved, and up to how many times as
# much where scores are longer than their lead. Tuned on the 250 problems, for 20
# iterations at most.
CERTAIN = 64
RANGE = 64.0
# Largest ‖x − Dᵀλ‖ there, and ‖Dᵀλ‖ of a combination that vanishes, with tokens of size
# one. Tuned on the 250 problems and on random contradictions.
STATIONARY = 64
VANISHING = 64
# A pair that misses the margin by less is not exchanged. Derived: as SUM.
MISSED = 16
# Shift of the Gram matrix, eps^0.75 of its trace. Tuned: three refinements take it off
# again, and a singular matrix stays positive.
SHIFT = 0.75
# Gap from which a point is polished. Derived: a quarter of SOLVED.
ROUGH = 1024

# The dual active set.

# It aims at b_k + GUARD eps ‖p‖ and stops at half of that. Derived: rounding the
# entries of p moves u_kᵀp by half a rounding of ‖p‖.
GUARD = 4
# A row this close, relative to the coefficients that combine others to it, depends on
# them. Derived: half of REFUTED, so that what it refutes passes that.
DEPENDENT = 32

# Ranks.

# Singular values below this many roundings of the largest, times the longer side, are
# zero. Derived: NumPy's rule for ranks, and ten for tokens that are rounded themselves.
RANK = 10

# Derivatives.

# p lies in the span of the active differences. Where it is further than eps^0.375 of
# its length off the span that is found, 1e-6 or 2e-3, short ones are lost beside long
# ones, and there is no derivative. Tuned on the mixed problems up to 16 decades: the
# relative error of the derivative is a few times that distance.
SPANNED = 0.375
