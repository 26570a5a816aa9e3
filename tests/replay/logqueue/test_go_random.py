"""Numbers that programs in Go print; the first ten of seed 1 below 100 stand in many of its tutorials."""

from replay.logqueue.go_random import GoRandom


def test_numbers_of_seed_one() -> None:
    random = GoRandom(1)
    assert [random.below(100) for _ in range(10)] == [81, 87, 47, 59, 81, 18, 25, 40, 56, 0]
    assert GoRandom(1).int63() == 5577006791947779410


def test_permutations_and_shuffles_hold_every_number_once() -> None:
    random = GoRandom(42)
    assert sorted(random.permutation(50)) == list(range(50))
    items = list(range(50))
    random.shuffle(items)
    assert sorted(items) == list(range(50)) and items != list(range(50))


def test_a_power_of_two_takes_low_bits() -> None:
    one, other = GoRandom(3), GoRandom(3)
    assert one.below(8) == (other.int63() >> 32) & 7
