"""The other files of deploy/: what can be checked of them without the programs that read them."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from byleave import telemetry
from byleave.server.serving import FINISH_SECONDS
from byleave.settings import ServerSettings
from byleave.telemetry.prometheus import public_name
from harness.proxies import DEPLOY, EXAMPLES, NAME

ROOT = DEPLOY.parent
OTHERS = {"BYLEAVE_CONFIG", "BYLEAVE_LOG", "BYLEAVE_NAME"}
"""Variables that are no setting: two are read elsewhere, one is the compose file's own."""
KNOWN = {f"BYLEAVE_{name.upper()}" for name in ServerSettings.model_fields} | OTHERS


@pytest.mark.parametrize("path", sorted(DEPLOY.iterdir()), ids=lambda path: path.name)
def test_every_variable_is_a_setting(path: Path) -> None:
    assert set(re.findall(r"BYLEAVE_[A-Z_]*[A-Z]", path.read_text())) <= KNOWN


def test_metrics_of_the_dashboard_exist() -> None:
    dashboard = json.loads((DEPLOY / "grafana.json").read_text())
    there: dict[str, set[str]] = {"up": {"job"}}
    for name, metric in telemetry.METRICS.items():
        public = public_name(name)
        endings = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        there |= {public + ending: _labels() for ending in endings}
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(expressions) > 8
    for expression in expressions:
        names = set(re.findall(r"\b(?:byleave_[a-z_]+|up)\b(?=[{\[)]|$)", expression))
        assert names, expression
        named = set(re.findall(r"\b(?:by|without) \(([a-z_, ]+)\)", expression))
        labels = {label.strip() for group in named for label in group.split(",")}
        assert names - labels <= set(there), expression
        assert labels <= _labels() | {"le"}, expression
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def _labels() -> set[str]:
    return {name.replace(".", "_") for name in telemetry.ATTRIBUTES.values()} | {"instance"}


def test_unit_is_one_that_systemd_takes_and_finds_safe(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze here")
    text = (DEPLOY / "byleave.service").read_text()
    assert "/opt/byleave/bin/byleave serve --host 127.0.0.1" in text
    unit = tmp_path / "byleave.service"
    unit.write_text(text.replace("/opt/byleave/bin/byleave", shutil.which("true") or ""))
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    judged = subprocess.run(
        [analyze, "security", "--offline=yes", "--threshold=15", str(unit)], capture_output=True, text=True, check=False
    )
    assert judged.returncode == 0, judged.stdout[-300:]
    stop = int(re.findall(r"TimeoutStopSec=(\d+)", text)[0])
    assert stop > 10 + FINISH_SECONDS, "time to drain, and for requests to end"


def test_image_copies_what_is_there_and_installs_what_exists() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert "not built" in text
    copied = [word for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M) for word in line.split()[:-1]]
    assert copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    kept = [line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")]
    assert set(copied) <= set(kept), "what is not sent to Docker cannot be copied"
    project = (ROOT / "pyproject.toml").read_text()
    (extras,) = re.findall(r"'\.\[([a-z,-]+)\]'", text)
    assert all(f"\n{extra} = [" in project for extra in extras.split(","))
    assert re.search(r"^USER byleave$", text, re.M)


def test_compose_file_names_what_exists() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    assert "not run" in text
    compose: dict[str, Any] = yaml.safe_load(text)
    services, networks, volumes = compose["services"], compose["networks"], compose["volumes"]
    proxy = services["proxy"]
    servers = [name for name, service in services.items() if service.get("image") == "byleave"]
    assert proxy["environment"]["SERVERS"].split() == [f"{name}:8477" for name in servers]
    assert len(servers) == 3
    for service in services.values():
        assert set(service["networks"]) <= set(networks)
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in volumes or (DEPLOY / source).exists(), source
        assert set(service.get("depends_on", ())) <= set(services)
    address = proxy["networks"]["front"]["ipv4_address"]
    for name in servers:
        settings = services[name]["environment"]
        assert settings["BYLEAVE_TRUSTED_PROXIES"] == address
        assert "127.0.0.1" in settings["BYLEAVE_ALLOWED_HOSTS"], "for the image's own check"
        grace = int(services[name]["stop_grace_period"].removesuffix("s"))
        assert grace > float(settings["BYLEAVE_DRAIN_SECONDS"]) + FINISH_SECONDS
        ServerSettings(trusted_proxies=(settings["BYLEAVE_TRUSTED_PROXIES"],), drain_seconds=10)
    caddyfile = (DEPLOY / "Caddyfile").read_text()
    assert {f"{{${name}" for name in proxy["environment"]} <= set(re.findall(r"\{\$[A-Z_]+", caddyfile))
    build = compose["x-server"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).exists()


@pytest.mark.parametrize("name", ["nginx.conf", "Caddyfile"])
def test_both_proxies_are_told_the_same(name: str) -> None:
    text = (DEPLOY / name).read_text()
    assert all(example in text for example in (*EXAMPLES, NAME))
    assert re.search(r"(?i)max.*size 256", text)
    assert ServerSettings().max_payload_bytes == 256 * 1024 * 1024
