"""The style of pictures: the same bytes each time, for light and for dark pages.

Colours are Okabe and Ito's, which people tell apart however they see colours, each with a shape of its own
(Okabe and Ito 2008, Color Universal Design); text and lines are a grey that reads on white and on black, on
nothing behind.
"""

from typing import Any

GREY, BLUE, ORANGE, GREEN = "#7a7a7a", "#0072B2", "#E69F00", "#009E73"
OTHERS = (("#CC79A7", "D"), ("#D55E00", "v"), ("#56B4E9", "P"))  # colours and markers
PHONE, TALL = 5.0, 7.0  # inches: the width of a picture, and its least height
LARGE = 17  # points: of a message
STYLE: Any = {  # whose keys are literals of matplotlib
    "svg.hashsalt": "fusegen",
    "font.family": "DejaVu Sans",
    "font.size": 12,  # in a picture as wide as a telephone, the size of its text
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


def headed(figure: Any, axes: Any, message: str) -> None:
    """Head a picture with its message, in large type, and with the legend of a panel."""
    handles, names = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        loc="outside upper left",
        ncols=3,
        handletextpad=0.3,
        title=message,
        title_fontsize=LARGE,
        alignment="left",
    )
