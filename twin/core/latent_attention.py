"""Multi-head latent attention (DeepSeek-V2: DeepSeek-AI 2024, arXiv:2405.04434, section 2.1 and appendix C).

Keys and values of all heads are made from one narrow vector a token, queries too where `query_rank` is not 0.
A head's query and key have a part without positions and a part with rotary ones; the latter of the key is
shared by all heads.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Latent:
    """Widths of latent attention. Names of published configurations: `q_lora_rank` (0: queries are made
    directly), `kv_lora_rank`, `qk_nope_head_dim`, `qk_rope_head_dim`, `v_head_dim`."""

    query_rank: int
    kv_rank: int
    nope: int
    rope: int
    value: int

    @property
    def fault(self) -> str | None:
        """Reason why there can be no such attention; None if there can."""
        if min(self.kv_rank, self.nope, self.rope, self.value) < 1 or self.query_rank < 0:
            return "latent attention has widths of at least 1, q_lora_rank of at least 0"
        return None

    @property
    def query_key(self) -> int:
        """Width of a head's query and of its key."""
        return self.nope + self.rope

    @property
    def ranks(self) -> int:
        """Width of the vectors that queries, keys and values are made from; each has a norm."""
        return self.query_rank + self.kv_rank

    @property
    def products(self) -> int:
        """Products of an attention: down and up for queries and for keys with values, and the output."""
        return 5 if self.query_rank else 4

    def weights(self, hidden: int, heads: int) -> int:
        """Elements of the matrices of a block's attention."""
        query = self.query_rank * (hidden + heads * self.query_key) or hidden * heads * self.query_key
        down = hidden * (self.kv_rank + self.rope)
        return query + down + self.kv_rank * heads * (self.nope + self.value) + heads * self.value * hidden

    def stored(self) -> int:
        """Elements a token that a block keeps beside queries, keys, values and result: what goes into the
        norms of the narrow vectors and what comes out."""
        return 2 * self.ranks + self.rope
