"""How data sets look to people: the catalogue, and what a fetch brought."""

from typing import TYPE_CHECKING, Any

from replay.console import Console

if TYPE_CHECKING:
    from ingest.fetch import Fetched
    from ingest.follow import Followed


def catalogue(console: Console, found: dict[str, Any]) -> None:
    """Public sets, a line each."""
    rows = [
        (e["name"], f"{e['files']:,}", f"{e['bytes'] / 1e6:.1f} MB", e["licence"], e["title"])
        for e in found["sets"]
    ]
    console.table("", ("name", "files", "size", "licence", "what it is"), rows)
    partial = [
        f"{e['name']} ({e['files'] - e['reachable']})" for e in found["sets"] if e["reachable"] < e["files"]
    ]
    console.line()
    console.line(f"files without an address of their own, from --mirror only: {', '.join(partial)}")


def fetched(console: Console, done: "Fetched") -> None:
    """What came, what is missing, and what to do next."""
    console.line(
        f"{done.name}: {done.new} files came, {done.present} were there, {done.size_bytes / 1e6:.1f} MB"
    )
    if done.left_out:
        more = f" and {len(done.left_out) - 1} more" if len(done.left_out) > 1 else ""
        console.line(f"without an address of their own: {done.left_out[0]}{more}; --mirror DIR takes them")
    console.line(f"twin ingest {done.folder}")


def followed(console: Console, done: "Followed") -> None:
    """What a following took in until it was ended."""
    console.line(
        f"{done.rows:,} rows added, {done.rejected:,} rejected, from {done.files:,} files and pieces"
    )
    for path, why in done.skipped.items():
        console.line(f"not read: {path}: {why}")
