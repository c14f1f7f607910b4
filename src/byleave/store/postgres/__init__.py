"""PostgreSQL as the record's database, for one server. Imported only if the URL asks for it: psycopg is an extra.

`connections` speaks with the server, `tables` makes and checks the tables and holds the lease, `database` runs units.
"""

from .database import PostgresDatabase

__all__ = ["PostgresDatabase"]
