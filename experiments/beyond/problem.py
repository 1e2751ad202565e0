"""The problems that the studies of the theory draw."""

import dataclasses

import jax

from experiments.common import memory
from jaxselect.data.corpus import Corpus
from jaxselect.data.synthetic import assumption_one
from jaxselect.model.parameters import Parameters, gaussian_reduced


@dataclasses.dataclass(frozen=True)
class Problem:
    """A family of problems that fulfils Assumption 1.

    Attributes:
        sequences: number of sequences n, even.
        length: tokens per sequence T.
        relevant: relevant tokens per class.
        irrelevant: irrelevant tokens.
    """

    sequences: int = 40
    length: int = 6
    relevant: int = 3
    irrelevant: int = 12

    def check(self) -> None:
        """Refuse sizes beyond memory, and those of no family."""
        tokens = 2 * self.relevant + self.irrelevant
        memory.require(
            memory.corpus(self.sequences, self.length, tokens),
            f"{self.sequences} sequences of {self.length}, {tokens} tokens",
        )
        # Traced only: nothing is compiled.
        jax.eval_shape(lambda: self.draw(0, 1e6))

    def draw(
        self, seed: int | jax.Array, dim: float | jax.Array
    ) -> tuple[Parameters, Corpus]:
        """Parameters before the step, and a corpus; both arguments may be traced.

        Args:
            seed: the draw is a function of it and of d alone.
            dim: embedding dimension d.

        Returns:
            (E⁰, p_0, v) in reduced coordinates, and n bags with labels ±1.

        Example:
            >>> before, corpus = Problem(8, 3, 1, 4).draw(0, 1e6)
            >>> before.embeddings.shape, corpus.labels.sum().item()
            ((6, 8), 0)
        """
        corpus_key, key = jax.random.split(jax.random.key(seed))
        corpus = assumption_one(corpus_key, **dataclasses.asdict(self))
        return gaussian_reduced(key, vocabulary=corpus.vocabulary, dim=dim), corpus
