"""Pictures of plans as SVG or PNG, by the file's suffix: memory, phases, scaling, time against money, truth.

Each function takes plain data and writes one file. Matplotlib is loaded when a picture is drawn; equal data make equal
bytes.
"""

from trainwright.render.pictures.bars import MemoryBar, StepBar, memory_bars, step_bars
from trainwright.render.pictures.charts import ParetoPoint, ScalingPoint, ScatterPoint, pareto, scaling, scatter
from trainwright.render.pictures.figure import drawable

__all__ = [
    "MemoryBar",
    "ParetoPoint",
    "ScalingPoint",
    "ScatterPoint",
    "StepBar",
    "drawable",
    "memory_bars",
    "pareto",
    "scaling",
    "scatter",
    "step_bars",
]
