"""Accounts and shares: Slurm's Fair Tree by hand."""

from pathlib import Path

import numpy as np
import pytest

from ingest.core.errors import InputError
from policy.queue import registry
from twin.queue.jobs import QueueJobs
from twin.queue.shares import EQUAL, FairShares, read_shares
from twin.queue.simulation import simulate

Row = tuple[int, int, int, int, int]
"""Submit, run, processors, account and user."""


def starts(rows: list[Row], shares: FairShares = EQUAL, policy: str = "fair-tree-accounts") -> list[int]:
    """Starts on 4 processors, seconds."""
    submit, run, size, account, user = zip(*rows, strict=True)
    jobs = QueueJobs.of_seconds(submit, run, size, user=user, account=account)
    return [int(one) // 10**9 for one in simulate(jobs, 4, registry.recipe(policy, shares)).start_ns]


USED: list[Row] = [(0, 10, 4, 1, 1), (1, 4, 4, 1, 2), (2, 6, 4, 2, 3)]
"""Usage by 20 s: user 1 of account 1 has 40 processor-seconds, its user 2 has 16, user 3 of account 2 has 24;
the third job goes before the second, since account 2 has had nothing at 10 s."""
NEXT: list[Row] = [(11, 1, 4, 1, 4), (12, 1, 4, 2, 3)]


def test_all_users_of_the_account_that_had_less_go_first() -> None:
    # At 10: account 2 goes first. At 16: account 1 has had 40, account 2 24: user 3 again, though user 4 has
    # had nothing. Then only account 1 is left: users 2 and 4 have had nothing, and go by submission.
    assert starts([*USED, *NEXT]) == [0, 17, 10, 21, 16]
    assert starts([*USED, *NEXT], policy="fair-tree") == [0, 10, 14, 20, 21]


def test_shares_of_accounts_weigh_their_usage() -> None:
    # At 16: 40 over 2 shares is less than 24 over 1; at 20, when account 1 has had 56, it is more.
    assert starts([*USED, *NEXT], FairShares({1: 2})) == [0, 16, 10, 21, 20]


def test_shares_of_users_count_within_their_account() -> None:
    rows: list[Row] = [(0, 8, 2, 1, 1), (0, 8, 2, 1, 2), (1, 1, 4, 1, 2), (2, 1, 4, 1, 1)]
    assert starts(rows) == [0, 0, 8, 9]
    assert starts(rows, FairShares(users={(1, 1): 2})) == [0, 0, 9, 8]
    assert starts(rows, FairShares(users={(1, 2): 0})) == [0, 0, 9, 8]  # who has no share comes last


def test_users_of_equal_accounts_are_sorted_together() -> None:
    # At 8 both accounts have had 16; user 1 all of it for half the shares, users 2 and 3 half for half each.
    # These two go first, by submission, though user 1 was submitted before; then account 2 has had 20.
    rows: list[Row] = [
        (0, 8, 2, 1, 1), (0, 8, 1, 2, 2), (0, 8, 1, 2, 3),
        (1, 1, 4, 1, 1), (2, 1, 4, 2, 3), (3, 1, 4, 2, 2),
    ]  # fmt: skip
    shares = FairShares(users={(1, 9): 1})  # a sibling that submits nothing halves the share of user 1
    assert starts(rows, shares) == [0, 0, 0, 9, 8, 10]


def test_a_tree_has_normalised_shares() -> None:
    account, user = np.array([7, 7, 5, 7, -1]), np.array([1, 2, 1, 1, -1])
    tree = FairShares({7: 3, 9: 5}, {(7, 2): 4, (5, 8): 1}).tree(account, user)
    assert tree.association.tolist() == [2, 3, 1, 2, 0] and tree.account.tolist() == [0, 1, 2, 2]
    assert tree.share.tolist() == [1, 1 / 2, 1 / 5, 4 / 5]
    assert tree.account_share.tolist() == [1 / 10, 1 / 10, 3 / 10]


def test_a_file_of_shares(tmp_path: Path) -> None:
    file = tmp_path / "shares.csv"
    file.write_text("account,user,shares\n1,,20\n1,4,2\n\n2,4,0\n")
    assert read_shares(file) == FairShares({1: 20}, {(1, 4): 2, (2, 4): 0})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("account,shares\n1,2\n", "row 1: the header is account,user,shares"),
        ("account,user,shares\n1,2\n", "row 2: 2 cells, not 3"),
        ("account,user,shares\n1,,2\nphysics,,3\n", "row 3, account: 'physics' is no whole number"),
        ("account,user,shares\n1,2,-1\n", "row 2, shares: -1 is not between"),
        ("account,user,shares\n1,-7,1\n", "row 2, user: -7 is negative"),
        ("account,user,shares\n1,2,1\n1,2,1\n", "row 3: those shares are said before"),
    ],
)
def test_a_line_that_says_nothing_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "shares.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read_shares(file)
    with pytest.raises(InputError, match="name a CSV file account,user,shares"):
        read_shares(tmp_path / "none.csv")
