"""What an administrator sees of the service: metrics, traces, logs. ``install`` puts them around an app; workers use ``begin``."""

from __future__ import annotations

from ischeduler.service.telemetry.install import Telemetry, TelemetrySettings, begin, install

__all__ = ["Telemetry", "TelemetrySettings", "begin", "install"]
