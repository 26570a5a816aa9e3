"""Figures as people read them in a table; a dash for what there is none of."""


def percent(share: float | None) -> str:
    """A share as people read it."""
    return "-" if share is None else f"{100 * share:.1f} %"


def milliseconds(seconds: float | None) -> str:
    """A latency in milliseconds."""
    return "-" if seconds is None else f"{1e3 * seconds:.2f}"


def per_token(seconds: float | None) -> str:
    """Time per token in microseconds."""
    return "-" if seconds is None else f"{1e6 * seconds:.2f}"


def per_billion(usd: float | None) -> str:
    """Egress in USD per billion tokens."""
    return "-" if usd is None else f"{1e9 * usd:,.0f}"


def counted(count: int, what: str) -> str:
    """1 finding, 2 findings."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")
