"""Room that the record takes in PostgreSQL, which tells only the size of its files.

Removed rows leave room in the files that new rows use again, once autovacuum has seen to it; how much that is, nobody
tells. So the rows that can be removed are measured instead, as they are stored: compressed texts are not unpacked.
"""

from typing import Any

from byleave.store.database import Space, Transaction

PRUNED_TABLES = ("tool_executions", "approvals", "replaced_texts", "events")
"""Tables from which retention removes rows."""
ROW_BYTES = 28
"""Header and pointer of a row."""
ENTRY_BYTES = 64
"""About one entry of an index."""


def space(transaction: Transaction, above: int) -> Space:
    """The room in use; rows are looked at only if the files take more than `above`."""
    files = _one(
        transaction,
        "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint AS size FROM pg_class "
        "WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'",
    )["size"]
    if files <= above:
        return Space(files, 0, shrinks=True)
    transaction.execute("SET LOCAL statement_timeout = 0")  # it reads whole tables, beside everybody else
    free = sum(_free(transaction, table) for table in PRUNED_TABLES)
    return Space(files - free, free, shrinks=True)


def _free(transaction: Transaction, table: str) -> int:
    about = _one(
        transaction,
        "SELECT pg_total_relation_size(to_regclass(:table)) AS size, "
        "(SELECT count(*) FROM pg_index WHERE indrelid = to_regclass(:table)) AS indexes, "
        "(SELECT string_agg(quote_ident(attname), ',') FROM pg_attribute "
        "WHERE attrelid = to_regclass(:table) AND attnum > 0 AND NOT attisdropped) AS columns",
        {"table": table},
    )
    sizes = " + ".join(f"coalesce(pg_column_size({column}), 0)" for column in about["columns"].split(","))
    rows = _one(transaction, f"SELECT count(*) AS count, coalesce(sum({sizes}), 0)::bigint AS size FROM {table}")  # noqa: S608 - our own names
    used = rows["size"] + rows["count"] * (ROW_BYTES + ENTRY_BYTES * about["indexes"])
    return max(0, about["size"] - used)


def _one(transaction: Transaction, sql: str, parameters: dict[str, Any] = {}) -> Any:  # noqa: B006 - only read
    return transaction.execute(sql, parameters).fetchone()
