"""Synthetic reviews, so that every study of real text can run without data.

Word frequencies follow Zipf's law, and some words are more likely in reviews of one
label. Sometimes "not" reverses the word that follows it, which counts of single words
cannot show.
"""

import numpy as np

from experiments.text.reviews import Reviews
from jaxselect import checks
from jaxselect.checks import BadInput

# Consonants that a syllable begins with.
ONSETS = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z"]
# Vowels that it ends with.
VOWELS = ["a", "e", "i", "o", "u"]
# Words of three syllables.
MOST_WORDS = (len(ONSETS) * len(VOWELS)) ** 3


def invent_reviews(
    *,
    seed: int,
    reviews: int,
    vocabulary: int = 2000,
    words: float = 60.0,
    strength: float = 1.0,
    negation: float = 0.05,
) -> Reviews:
    """Draw labelled reviews, half of them positive.

    Word s of rank r is drawn with probability ∝ e^{y t_s} / (r + 2), where the tone t_s
    is zero for four words in five and N(0, strength²) for the others.

    Args:
        seed: seed of everything drawn but the language, which does not depend on it.
        reviews: how many.
        vocabulary: number of words of the language, without "not".
        words: mean length of a review.
        strength: standard deviation of the tones that are not zero.
        negation: share of words to which "not" is put in front and whose tone counts
            the other way.

    Returns:
        Texts and labels ±1.

    Raises:
        BadInput: a number that no review can be made with.

    Example:
        >>> reviews = invent_reviews(seed=0, reviews=4)
        >>> reviews.labels.tolist(), len(reviews.texts)
        ([1, -1, 1, -1], 4)
    """
    checks.whole("seed", seed, least=0)
    checks.whole("reviews", reviews)
    checks.whole("vocabulary", vocabulary, most=MOST_WORDS)
    for name, value, most in (
        ("words", words, 1e6),
        ("strength", strength, 100.0),
        ("negation", negation, 1.0),
    ):
        if not 0 <= value <= most:
            raise BadInput(f"{name} {value}: wanted a number from 0 to {most:g}")
    language = np.random.default_rng(0)
    tone = strength * language.normal(size=vocabulary)
    tone *= language.random(vocabulary) < 0.2
    names = np.array([_name(place) for place in range(vocabulary)])
    likely = 1 / (np.arange(vocabulary) + 2)

    draw = np.random.default_rng([seed, 1])
    labels = np.where(np.arange(reviews) % 2 == 0, 1, -1).astype(np.int32)
    texts = []
    for label in labels:
        length = 1 + draw.poisson(words * draw.gamma(4.0) / 4)
        turned = draw.random(length) < negation
        sign = np.where(turned, -label, label)
        chosen = np.where(
            sign > 0,
            draw.choice(vocabulary, length, p=_normalised(likely * np.exp(tone))),
            draw.choice(vocabulary, length, p=_normalised(likely * np.exp(-tone))),
        )
        spoken = np.where(turned, "not ", "").astype(object) + names[chosen]
        texts.append(" ".join(spoken))
    return Reviews(texts, labels)


def _normalised(weight: np.ndarray) -> np.ndarray:
    """Weights that add up to one."""
    return weight / weight.sum()


def _name(place: int) -> str:
    """Spell a number as a word, by its digits in a base of syllables."""
    base = len(ONSETS) * len(VOWELS)
    syllables = []
    for digit in (place % base, place // base % base, place // base**2):
        syllables.append(ONSETS[digit // len(VOWELS)] + VOWELS[digit % len(VOWELS)])
    return "".join(syllables[: 2 + (place >= base**2)])
