"""From a template and values to an answer. Everything is escaped unless this package itself has made it."""

from __future__ import annotations

import hashlib
import time
from functools import cache, partial
from pathlib import Path
from typing import Any

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from ischeduler import __version__
from ischeduler.service.auth.principal import Principal
from ischeduler.service.auth.sessions import csrf_token
from ischeduler.service.dashboard import charts, words
from ischeduler.service.dashboard.views.curves import Curve

HERE = Path(__file__).parent
THEMES = ("auto", "light", "dark")
THEME_COOKIE = "isched_theme"
NAV = (("/runs", "Runs"), ("/plan", "Plan"), ("/clusters", "Clusters"), ("/estimators", "Estimators"))
ADMIN = ("/admin", "Admin")
POLL_S, SLOW_S = 5, 15
"""Seconds between two looks of a live part; the slower where a stream tells of changes at once."""
TABLE_ROWS = 40
HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "same-origin"}
"""Beside what the service sets for every page. Under a stricter referrer policy a browser hides where its forms come from."""


@cache
def environment() -> Environment:
    """The templates. An undefined name is an error, not an empty place."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= {
        "amount": words.amount, "percent": words.percent, "plural": words.plural, "clock": words.clock, "machine_time": words.machine_time,
    }  # fmt: skip
    drawn = ("share_bar", "curve_plot", "curve_data", "y_ticks", "x_ticks", "gantt_lane", "axis_ticks", "compared_strip", "option_strip",
             "ratio_dots", "sparkline")  # fmt: skip
    made.globals |= {name: getattr(charts, name) for name in drawn}
    made.globals |= {"static": static_url, "rows_of": rows_of, "version": __version__, "poll_s": POLL_S, "slow_s": SLOW_S}
    return made


def page(request: Request, template: str, viewer: Principal | None = None, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A whole page (or a live part of one) for whoever looks."""
    theme = theme_of(request)
    common: dict[str, Any] = {
        "viewer": viewer, "nav": [*NAV, *([ADMIN] if viewer and viewer.centre_admin else [])], "csrf": csrf_token(request),
        "section": "/" + request.url.path.strip("/").partition("/")[0], "path": _here(request), "theme": theme,
        "next_theme": THEMES[(THEMES.index(theme) + 1) % len(THEMES)], "made": time.strftime("%H:%M:%S UTC", time.gmtime()),
        "notice": "", "notice_tone": "good", "stream": "",
    }  # fmt: skip
    html = environment().get_template(template).render(common | values)
    return HTMLResponse(html, status_code=status, headers=HEADERS)


def theme_of(request: Request) -> str:
    """What this browser chose: 'auto' follows the system."""
    chosen = request.cookies.get(THEME_COOKIE, "auto")
    return chosen if chosen in THEMES else "auto"


def _here(request: Request) -> str:
    query = request.url.query
    return request.url.path + (f"?{query}" if query else "")


@cache
def static_file(name: str) -> tuple[bytes, str] | None:
    """A shipped file and its fingerprint; None where there is none of that name."""
    names = {str(p.relative_to(HERE / "static")): p for p in (HERE / "static").rglob("*") if p.is_file()}
    path = names.get(name)
    if path is None:
        return None
    content = path.read_bytes()
    return content, hashlib.blake2b(content, digest_size=8).hexdigest()


def static_url(name: str) -> str:
    """Its address, changed whenever the file changes: browsers may keep it for ever."""
    found = static_file(name)
    if found is None:
        raise KeyError(name)
    return f"/static/{name}?v={found[1]}"


def rows_of(curve: Curve) -> list[list[str]]:
    """A curve as rows of a table, evenly chosen where there are many points."""
    step = max(1, len(curve.x) // TABLE_ROWS)
    figure = partial(_cell, empty=words.NOT_KNOWN)
    last = len(curve.x) - 1
    return [[figure(curve.x[i]), *(figure(line.y[i]) for line in curve.lines)] for i in range(len(curve.x)) if i % step == 0 or i == last]


def _cell(value: float | None, empty: str) -> str:
    return empty if value is None else f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
