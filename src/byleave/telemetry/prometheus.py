"""Registry: metrics of this process in memory, as text for Prometheus.

Names are those that an OpenTelemetry collector makes of ours, so a dashboard reads either: `byleave.approval.wait` is
`byleave_approval_wait_seconds`. Needs no OpenTelemetry. Attributes pass the same table as everywhere (`named`).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping

from byleave.telemetry import METRICS, Metric, Value, named, readings_of

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNITS = {"s": "_seconds"}

Labels = tuple[tuple[str, Value], ...]


class Registry:
    """Counts from when it was made."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[Labels, int]] = defaultdict(lambda: defaultdict(int))
        self._histograms: dict[str, dict[Labels, _Histogram]] = defaultdict(dict)

    def count(self, metric: str, attributes: Mapping[str, Value | None]) -> None:
        self._counts[metric][_labels(attributes)] += 1

    def observe(self, metric: str, value: float, attributes: Mapping[str, Value | None]) -> None:
        series, labels = self._histograms[metric], _labels(attributes)
        if labels not in series:
            series[labels] = _Histogram(METRICS[metric].buckets)
        series[labels].add(value)

    def text(self) -> str:
        """Everything, in the format of Prometheus."""
        return "".join(f"{line}\n" for name, metric in METRICS.items() for line in self._lines(name, metric))

    def _lines(self, name: str, metric: Metric) -> Iterator[str]:
        public = public_name(name)
        yield f"# HELP {public} {metric.description}"
        yield f"# TYPE {public} {metric.kind}"
        match metric.kind:
            case "counter":
                yield from (f"{public}{_written(at)} {value}" for at, value in self._counts[name].items())
            case "histogram":
                for at, histogram in self._histograms[name].items():
                    yield from histogram.lines(public, at)
            case _:
                found = readings_of(name).items()
                yield from (f"{public}{_written(_labels(dict(at)))} {value}" for at, value in found)


class _Histogram:
    """Values in buckets; the last one has no limit."""

    def __init__(self, limits: tuple[float, ...]) -> None:
        self._limits = limits
        self._counts = [0] * (len(limits) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._limits, value)] += 1
        self._sum += value

    def lines(self, name: str, at: Labels) -> Iterator[str]:
        total = 0
        for limit, count in zip((*map(str, self._limits), "+Inf"), self._counts, strict=True):
            total += count
            yield f"{name}_bucket{_written((*at, ('le', limit)))} {total}"
        yield f"{name}_sum{_written(at)} {self._sum!r}"
        yield f"{name}_count{_written(at)} {total}"


def public_name(name: str) -> str:
    """A metric's name in Prometheus."""
    metric = METRICS[name]
    return name.replace(".", "_") + UNITS.get(metric.unit, "") + ("_total" if metric.kind == "counter" else "")


def _labels(attributes: Mapping[str, Value | None]) -> Labels:
    return tuple(sorted((name.replace(".", "_"), value) for name, value in named(attributes).items()))


def _written(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels) + "}" if labels else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
