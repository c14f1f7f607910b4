"""Bringing a database's tables up to date, with Alembic. Runs at every start; a no-op when nothing is new."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool


def upgrade(url: str) -> None:
    """Migrate to the newest revision."""
    engine = create_engine(url, poolclass=NullPool)
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    engine.dispose()
