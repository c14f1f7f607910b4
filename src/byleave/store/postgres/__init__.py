"""PostgreSQL as the record's database. Imported only if the URL asks for it: psycopg is an extra.

`connections` speaks with the server, `tables` makes, migrates and checks the tables and lets servers take turns,
`database` runs units, `notices` hears of those of other servers; `sizes` measures the record, `copying` is an end of
`store/transfer.py`.
"""

from .database import PostgresDatabase

__all__ = ["PostgresDatabase"]
