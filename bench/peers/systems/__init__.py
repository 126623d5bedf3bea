"""One file a system. What is listed here is measured, in this order in the tables."""

from bench.peers.system import System
from bench.peers.systems.aegra import Aegra
from bench.peers.systems.agno import Agno
from bench.peers.systems.langgraph_dev import LanggraphDev
from bench.peers.systems.ours import Quarterdeck
from bench.peers.systems.restate import Restate

SYSTEMS: tuple[type[System], ...] = (Quarterdeck, Agno, Aegra, LanggraphDev, Restate)
