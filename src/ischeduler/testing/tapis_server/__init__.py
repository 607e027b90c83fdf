"""A stand-in for a Tapis v3 tenant, for tests: it checks every request as the real services do, runs jobs, tells news, and misbehaves.

It knows the operations that iScheduler uses: tokens, jobs, files, systems, apps. Requests are checked against the OpenAPI documents that
tapipy ships, with no unknown field in any object; a schema given as ``submit_schema`` is checked, too.
"""

from ischeduler.testing.tapis_server.faults import Faults
from ischeduler.testing.tapis_server.runners import LocalRunner, SimulatedRunner
from ischeduler.testing.tapis_server.server import TapisServer
from ischeduler.testing.tapis_server.transport import InProcess, served

__all__ = ["Faults", "InProcess", "LocalRunner", "SimulatedRunner", "TapisServer", "served"]
