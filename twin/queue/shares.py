"""Accounts, their users, and what each is entitled to: the tree that Slurm's Fair Tree sorts by.

Of two accounts the one with the higher level fairshare goes first, with all its users; users of one account
follow theirs. Level fairshare is S / U: S the share over the sum of the siblings' shares, U the usage over
that of the siblings together. Without usage it is infinite, without a share 0. Accounts that are equal have
their users sorted together, users that are equal go by submission (Cox and Morrison, Slurm User Group 2014;
Slurm, "Fair Tree Fairshare Algorithm").
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ingest.core.errors import InputError
from twin.queue.jobs import UNKNOWN, Float, Int

HEADER = ["account", "user", "shares"]
MOST = 10**9


@dataclass(frozen=True, eq=False, slots=True)
class FairTree:
    """Association (account and user) of each job (n,), account of each association (a,), its normalised share
    (a,), and that of each account (c,)."""

    association: Int
    account: Int
    share: Float
    account_share: Float


@dataclass(frozen=True)
class FairShares:
    """Shares of accounts, and of users in them, by number; whoever is not named has 1, as in Slurm."""

    accounts: Mapping[int, int] = field(default_factory=dict)
    users: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def tree(self, account: Int, user: Int) -> FairTree:
        """Returns the tree of jobs with these accounts and users (n,); -1 is an account, or a user, too."""
        pairs, association = np.unique(np.stack((account, user)), axis=1, return_inverse=True)
        accounts, of = np.unique(pairs[0], return_inverse=True)
        own = np.array([self.users.get(pair, 1) for pair in zip(*pairs.tolist(), strict=True)], np.float64)
        whole = np.bincount(of, own).astype(np.float64)
        for (named, someone), shares in self.users.items():  # siblings without a job have their share, too
            if named in accounts and not ((pairs[0] == named) & (pairs[1] == someone)).any():
                whole[np.searchsorted(accounts, named)] += shares
        theirs = np.array([self.accounts.get(one, 1) for one in accounts.tolist()], np.float64)
        idle = sum(shares for one, shares in self.accounts.items() if one not in accounts)
        return FairTree(
            association.reshape(-1).astype(np.int64), of.reshape(-1).astype(np.int64),
            _over(own, whole[of]), _over(theirs, np.full(len(theirs), theirs.sum() + idle)),
        )  # fmt: skip


EQUAL = FairShares()
"""One share each."""


def read_shares(path: Path) -> FairShares:
    """Reads a CSV file `account,user,shares`; a line without a user is the share of the account. Accounts and
    users are the numbers of the log (SWF: group and user).

    Raises:
        InputError: it cannot be read, or a line says nothing; the message has its row and column.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: {error}; name a CSV file {','.join(HEADER)}") from error
    if not rows or rows[0] != HEADER:
        raise InputError(f"{path}: row 1: the header is {','.join(HEADER)}")
    return _of_rows(path, enumerate(rows[1:], 2))


def _of_rows(path: Path, rows: Iterable[tuple[int, list[str]]]) -> FairShares:
    accounts: dict[int, int] = {}
    users: dict[tuple[int, int], int] = {}
    for number, row in rows:
        if not row:
            continue
        if len(row) != len(HEADER):
            raise InputError(f"{path}: row {number}: {len(row)} cells, not {len(HEADER)}")
        account, shares = (
            _whole(path, number, name, row[at]) for at, name in ((0, "account"), (2, "shares"))
        )
        if not 0 <= shares <= MOST:
            raise InputError(f"{path}: row {number}, shares: {shares} is not between 0 and {MOST}")
        pair = (account, _whole(path, number, "user", row[1])) if row[1] else None
        if account in accounts if pair is None else pair in users:
            raise InputError(f"{path}: row {number}: those shares are said before; leave one line out")
        if pair is None:
            accounts[account] = shares
        else:
            users[pair] = shares
    return FairShares(accounts, users)


def _whole(path: Path, row: int, column: str, cell: str) -> int:
    try:
        found = int(cell)
    except ValueError as error:
        raise InputError(f"{path}: row {row}, {column}: {cell!r} is no whole number") from error
    if not UNKNOWN <= found <= 2**53:
        raise InputError(f"{path}: row {row}, {column}: {cell} is negative, or too large")
    return found


def _over(part: Float, whole: Float) -> Float:
    """Returns shares of a sum, 0 where nobody has any."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)
