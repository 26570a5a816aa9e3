from policy.hippo.agent.search_trust import LEAST, REMEMBERED, SearchTrust


def test_searches_are_needless_once_enough_of_them_gained_nothing() -> None:
    trust = SearchTrust()
    for _ in range(LEAST):
        assert not trust.needless
        trust.record(0.9)
    assert trust.needless


def test_a_gain_of_a_margin_is_remembered_for_a_while() -> None:
    trust = SearchTrust()
    trust.record(1.0)
    for _ in range(REMEMBERED - 1):
        trust.record(0.0)
        assert not trust.needless
    trust.record(0.0)
    assert trust.needless


def test_other_gpus_make_all_searches_worth_it_again() -> None:
    trust = SearchTrust()
    for _ in range(LEAST):
        trust.record(0.0)
    trust.forget()
    assert not trust.needless
