"""A real nginx before some servers: TLS in front, plain HTTP behind, streams passed on as they come."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
"""Debian keeps nginx off the path of most users."""
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def why_not() -> str | None:
    """The reason that no proxy can be started here."""
    missing = [name for name in ("nginx", "openssl") if shutil.which(name, path=_PATH) is None]
    return f"{' and '.join(missing)} not installed (scripts/setup-tests)" if missing else None


@dataclass(frozen=True)
class Proxy:
    """An nginx that listens on one port of this machine, with a certificate of its own."""

    directory: Path
    port: int

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def certificate(self) -> Path:
        """What its clients have to trust."""
        return self.directory / "proxy.pem"

    def prepare(self, ports: Sequence[int]) -> list[str]:
        """Write certificate and configuration; return how it is started in the foreground."""
        self.directory.mkdir()
        key, configuration = self.directory / "proxy.key", self.directory / "nginx.conf"
        subject = ("-subj", "/CN=Byleave drill", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2")
        kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        subprocess.run(
            ["openssl", "req", "-x509", *kind, *subject, "-keyout", str(key), "-out", str(self.certificate)],
            check=True,
            capture_output=True,
        )
        configuration.write_text(self._configuration(ports, key))
        program = shutil.which("nginx", path=_PATH)
        assert program is not None
        return [program, "-p", str(self.directory), "-e", "error.log", "-c", str(configuration)]

    def _configuration(self, ports: Sequence[int], key: Path) -> str:
        servers = "".join(f"server 127.0.0.1:{port} max_fails=1 fail_timeout=1s; " for port in ports)
        temporary = "".join(f"{name}_temp_path {self.directory / name}; " for name in _TEMPORARY)
        user = "user root;" if os.geteuid() == 0 else ""  # workers of another user could not enter our directory
        return f"""\
daemon off; {user} worker_processes 1; pid {self.directory / "nginx.pid"}; error_log error.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off; {temporary}
    client_max_body_size 256m;
    upstream servers {{ {servers} }}
    server {{
        listen 127.0.0.1:{self.port} ssl;
        ssl_certificate {self.certificate}; ssl_certificate_key {key};
        location / {{
            proxy_pass http://servers;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_connect_timeout 2s;
            proxy_read_timeout 30s;
        }}
    }}
}}
"""
