"""Random numbers as `math/rand` of Go draws them, for schedules that were published with its seeds.

An additive lagged Fibonacci generator, x[k] = x[k - 607] + x[k - 273] modulo 2^64 (Mitchell and Moore 1958;
Knuth, TAOCP 2, 3.2.2). Its state is that of a first generator after 7.8 x 10^12 steps, mixed with a seed of
the minimal standard generator (Park and Miller, CACM 1988). The steps are not made one by one: as the
recurrence is linear, x^N modulo its characteristic polynomial says how state N follows from state 0."""

from collections.abc import MutableSequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

LENGTH, TAP = 607, 273
MODULUS = 2**31 - 1
STEPS = 7_800_000_000_000
WORD = 2**64 - 1
Words = NDArray[np.uint64]


class GoRandom:
    """A source of random numbers, after `rand.Seed`."""

    def __init__(self, seed: int) -> None:
        mixed = zip(_seeded(seed, 40, 20), _cooked(), strict=True)
        self.state = [one ^ other for one, other in mixed]
        self.at = 0

    def int63(self) -> int:
        """Returns the next number below 2^63."""
        self.at = (self.at - 1) % LENGTH
        feed = (self.at + LENGTH - TAP) % LENGTH
        self.state[feed] = (self.state[feed] + self.state[self.at]) & WORD
        return self.state[feed] & (2**63 - 1)

    def below(self, count: int) -> int:
        """Returns a number below `count`, as `Intn`."""
        if count & (count - 1) == 0:
            return (self.int63() >> 32) & (count - 1)
        most = 2**31 - 1 - 2**31 % count
        drawn = self.int63() >> 32
        while drawn > most:
            drawn = self.int63() >> 32
        return drawn % count

    def permutation(self, count: int) -> list[int]:
        """Returns the numbers below `count` in random order, as `Perm`."""
        found = [0] * count
        for one in range(count):
            other = self.below(one + 1)
            found[one] = found[other]
            found[other] = one
        return found

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Puts items into random order, as `Shuffle`, which draws below a number in another way (Lemire,
        TOMACS 2019)."""
        for last in range(len(items) - 1, 0, -1):
            product = (self.int63() >> 31) * (last + 1)
            while product & 0xFFFFFFFF < (2**32 - last - 1) % (last + 1):
                product = (self.int63() >> 31) * (last + 1)
            other = product >> 32
            items[last], items[other] = items[other], items[last]


def _seeded(seed: int, high: int, middle: int) -> list[int]:
    """The words that a seed makes, three numbers of the minimal standard generator each."""
    x = seed % MODULUS or 89_482_311
    for _ in range(20):
        x = 48_271 * x % MODULUS
    words = []
    for _ in range(LENGTH):
        parts = []
        for _ in range(3):
            x = 48_271 * x % MODULUS
            parts.append(x)
        words.append((parts[0] << high ^ parts[1] << middle ^ parts[2]) & WORD)
    return words


@cache
def _cooked() -> tuple[int, ...]:
    """The state of the first generator after `STEPS` steps."""
    places = [(LENGTH - TAP - 1 - one) % LENGTH for one in range(LENGTH)]
    words = _seeded(1, 20, 10)
    first = np.array([words[place] for place in places], np.uint64)
    power, found = _power(STEPS), [0] * LENGTH
    for one in range(LENGTH):
        found[(LENGTH - TAP - 1 - STEPS - one) % LENGTH] = int((power * first).sum(dtype=np.uint64))
        power = _reduced(np.concatenate((np.zeros(1, np.uint64), power)))
    return tuple(found)


def _power(exponent: int) -> Words:
    """x^exponent modulo x^607 - x^334 - 1, coefficients modulo 2^64."""
    result, square = np.zeros(LENGTH, np.uint64), np.zeros(LENGTH, np.uint64)
    result[0] = square[1] = 1
    while exponent:
        if exponent & 1:
            result = _reduced(_product(result, square))
        square = _reduced(_product(square, square))
        exponent >>= 1
    return result


def _product(one: Words, other: Words) -> Words:
    found = np.zeros(2 * LENGTH - 1, np.uint64)
    for place in range(LENGTH):
        found[place : place + LENGTH] += one[place] * other
    return found


def _reduced(polynomial: Words) -> Words:
    """The remainder: x^607 is x^334 + 1."""
    found = polynomial.copy()
    for place in range(len(found) - 1, LENGTH - 1, -1):
        word = found[place : place + 1]  # an array, which wraps around without a warning
        found[place - LENGTH : place - LENGTH + 1] += word
        found[place - TAP : place - TAP + 1] += word
    return found[:LENGTH]
