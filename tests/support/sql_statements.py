"""Random statements for `twin sql`: valid, half-valid and hostile ones, the same for the same seed."""

import random
from collections.abc import Mapping

from replay.sql.views import VIEWS

NAMES = ("runs", "events", "decisions", "links", "plans", "iterations", "jobs", "link_samples", "gpu_samples")
COLUMNS = (
    "run",
    "run",
    "run",
    "seq",
    "seq",
    "time_s",
    "job",
    "policy",
    "payload",
    "plan",
    "src",
    "ts",
    "type",
)
VALUES = (
    "1", "-1", "0", "1e308", "'nan'::double", "null", "'a'", "''", "x'00ff'", "date '290000-01-01'",
    "timestamp 'infinity'", "interval '3 months'", "170141183460469231731687303715884105727::hugeint",
    "true", "[1, null]", "{'a': [1], 'b': 'x'}", "map {1: 'a'}", "union_value(a := 1)", "'\\xff'::blob",
    "uuid()", "[]", "'a'::enum('a', 'b')", "'101'::bit", "1.5::decimal(38, 10)", "time '24:00:00'",
    "'{\"a\": 1}'::json", "{}", "timestamp_ns '2000-01-01 00:00:00.123456789'", "timestamptz '2000-01-01'",
    "chr(0)", "chr(27) || '[31m'",
)  # fmt: skip
FUNCTIONS = (
    "abs", "lower", "upper", "length", "md5", "hash", "typeof", "to_json", "json_structure", "count", "sum",
    "max", "list", "first", "repeat", "range", "generate_series", "unnest", "regexp_matches", "strftime",
    "epoch_ns", "getenv", "current_setting", "getvariable", "error", "write_log", "json_serialize_plan",
    "json_serialize_sql", "nextval", "sleep_ms", "upcast_payload", "create_sort_key", "stats", "version",
    "current_query", "format", "read_text", "array_value", "histogram", "quantile_cont", "list_sort",
    "map_entries", "struct_pack", "finalize",
)  # fmt: skip
TABLES = (
    "range", "generate_series", "repeat", "unnest", "json_each", "test_all_types", "duckdb_views",
    "duckdb_functions", "read_text", "read_blob", "read_csv", "read_json", "read_parquet", "glob",
    "sniff_csv", "parquet_metadata", "query", "query_table", "duckdb_secrets", "duckdb_settings",
    "pragma_table_info", "arrow_scan", "seq_scan", "enable_profiling", "checkpoint", "histogram", "summary",
    "json_execute_serialized_sql", "sqlite_scan", "nothing",
)  # fmt: skip
COMMANDS = (
    "copy ({query}) to {path} (format {form})", "copy {view} to {path}", "copy {view} from {path}",
    "attach {path} as a", "detach memory", "export database {path}", "import database {path}",
    "install httpfs", "load {path}", "set {setting} = {value}", "reset {setting}", "pragma {setting}",
    "call {table}({path})", "create table t as {query}", "create view v as {query}",
    "create macro m(a) as (a)", "drop view {view}", "insert into {view} {query}", "delete from {view}",
    "update {view} set run = {value}", "vacuum", "checkpoint", "explain {query}", "explain analyze {query}",
    "prepare p as {query}", "execute p", "begin", "use memory", "{query}; {query}",
    "{query}; copy ({query}) to {path}", "create secret (type s3)", "pivot {view} on run",
)  # fmt: skip
BODIES = (
    "copy ({query}) to {path} (format {form}, use_tmp_file false)", "copy {view} to {path}",
    "insert into {view} {query}", "delete from {view}", "update {view} set run = 'x'", "truncate {view}",
    "{query}",
)  # fmt: skip
SETTINGS = (
    "threads", "memory_limit", "temp_directory", "enable_external_access", "allowed_paths",
    "lock_configuration", "log_query_path", "profiling_output", "home_directory", "extension_directories",
    "nothing",
)  # fmt: skip
MOST_DEEP = 3


class Statements:
    """Statements over files of the given names; paths stand in them as SQL text."""

    def __init__(self, seed: int, paths: Mapping[str, str]) -> None:
        self.chance = random.Random(seed)
        remote = ("https://localhost:9/x.parquet", "s3://bucket/x.csv", "/dev/stdin", "*", "../secrets/*.csv")
        self.paths = (*paths.values(), *(f"{path}*" for path in paths.values()), *remote)

    def one(self) -> str:
        """The next statement."""
        kind = self.chance.random()
        if kind < 0.15:
            text = self.filled(self.chance.choice(COMMANDS))
        else:
            text = self.sound() if kind < 0.45 else self.query(0)
        return self.damaged(text) if self.chance.random() < 0.1 else text

    def sound(self) -> str:
        """A query that DuckDB can bind: columns of one view, values of every type, a few clauses."""
        chance = self.chance
        view = chance.choice(VIEWS)
        names = [f'"{name}"' for name, _ in view.columns]
        chosen = [*chance.sample(names, k=min(3, len(names))), chance.choice(VALUES)]
        forms = (
            f"select {', '.join(chosen)} from {view.name} order by all limit 20",
            f"from {view.name} where {names[0]} is not null limit 5",
            f"select {names[0]}, count(*), max({names[1]}) from {view.name} group by all",
            f"with x as (from {view.name}) select {chosen[0]}, row_number() over () from x",
            f"select * from {view.name} join runs using (run) limit 3",
            f"{chance.choice(('describe', 'summarize'))} {view.name}",
            f"select {chosen[0]} from {view.name} union all select null",
            f"select {chosen[-1]} as x, typeof(x) from range(3)",
            f"select * from {chance.choice(('gpu_samples', 'link_samples', 'rejects', 'test_all_types()'))}",
        )
        return chance.choice(forms)

    def filled(self, form: str, depth: int = 2) -> str:
        """A form with its parts chosen."""
        return form.format(
            query=self.query(depth), path=self.path(), form=self.chance.choice(("csv", "parquet", "json")),
            view=self.chance.choice(NAMES), setting=self.chance.choice(SETTINGS), value=self.value(depth),
            table=self.chance.choice(TABLES),
        )  # fmt: skip

    def query(self, depth: int) -> str:
        """A SELECT, often with parts that are refused."""
        chance = self.chance
        text = f"select {self.columns(depth)} from {self.source(depth)}"
        if chance.random() < 0.3:
            sign = chance.choice(("=", "<", "is", "in", "like"))
            text += f" where {self.value(depth)} {sign} ({self.value(depth)})"
        if chance.random() < 0.2:
            text += f" group by {chance.choice(('all', '1', *COLUMNS))}"
        if chance.random() < 0.2:
            text += f" order by {chance.choice(('all', '1 desc', *COLUMNS))}"
        if chance.random() < 0.2 and depth < MOST_DEEP:
            text += f" {chance.choice(('union', 'union all', 'except', 'intersect'))} {self.query(depth + 1)}"
        if chance.random() < 0.25 and depth < MOST_DEEP:
            body = self.filled(chance.choice(BODIES), depth + 1)
            text = f"with {chance.choice(('', 'recursive '))}x as ({body}) {text}"
        wrapped = chance.random()
        if wrapped < 0.05:
            return f"describe {text}"
        return f"summarize {text}" if wrapped < 0.1 else text

    def source(self, depth: int) -> str:
        """What stands after FROM."""
        chance = self.chance
        kind = chance.random()
        if kind < 0.5 or depth >= MOST_DEEP:
            return chance.choice((*NAMES, "x", "main.runs", "information_schema.tables", "pg_settings", "v"))
        if kind < 0.65:
            return chance.choice((self.path(), f'"{self.path()[1:-1]}"'))
        if kind < 0.85:
            given = chance.choice((self.path(), self.value(depth), f"{self.value(depth)}, {self.path()}", ""))
            return f"{chance.choice(TABLES)}({given})"
        if kind < 0.95:
            return f"({self.query(depth + 1)}) as s"
        join = chance.choice((",", "cross join", "natural join"))
        return f"{self.source(depth + 1)} {join} {chance.choice(NAMES)}"

    def columns(self, depth: int) -> str:
        """What is selected."""
        count = self.chance.choice((1, 1, 2, 3))
        return ", ".join(self.chance.choice(("*", "count(*)", self.value(depth))) for _ in range(count))

    def value(self, depth: int) -> str:
        """An expression."""
        chance = self.chance
        kind = chance.random()
        if depth >= MOST_DEEP or kind < 0.35:
            return chance.choice(VALUES)
        if kind < 0.65:
            return chance.choice(COLUMNS)
        if kind < 0.75:
            return self.path()
        if kind < 0.95:
            return f"{chance.choice(FUNCTIONS)}({self.value(depth + 1)})"
        return f"({self.query(depth + 1)} limit 1)"

    def path(self) -> str:
        """The name of a file as an SQL string."""
        return f"'{self.chance.choice(self.paths)}'"

    def damaged(self, text: str) -> str:
        """A statement with a piece cut out or a sign put in."""
        at = self.chance.randrange(len(text))
        if self.chance.random() < 0.5:
            return text[:at] + text[at + self.chance.randrange(1, 10) :]
        return (
            text[:at]
            + self.chance.choice(("'", '"', ";", "(", ")", "--", "/*", "\0", "\ud800", "$$", "é"))
            + text[at:]
        )
