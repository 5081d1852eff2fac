"""The style of pictures: the same bytes each time, for light and for dark pages.

Colours are Okabe and Ito's, which people tell apart however they see colours, each with a shape of its own
(Okabe and Ito 2008, Color Universal Design); text and lines are a grey that reads on white and on black, on
nothing behind.
"""

from __future__ import annotations

from typing import Any

GREY, BLUE, ORANGE, GREEN = "#7a7a7a", "#0072B2", "#E69F00", "#009E73"
OTHERS = (("#CC79A7", "D"), ("#D55E00", "v"), ("#56B4E9", "P"))  # colours and markers
STYLE: Any = {  # whose keys are literals of matplotlib
    "svg.hashsalt": "fusegen",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "legend.frameon": False,
}
SAVED: dict[str, Any] = {"dpi": 160, "transparent": True, "bbox_inches": "tight"}
UNDATED: dict[str, dict[str, str | None]] = {"svg": {"Date": None}, "png": {"Software": None}}
