"""Colours that people with any colour vision can tell apart (Okabe and Ito). Those of idle causes: their table."""

from stageline.engine.causes import TABLE

BLUE, ORANGE, VERMILION = "#0072B2", "#E69F00", "#D55E00"
BUSY = BLUE
SERVICES = (BLUE, "#004B76", "#2C8CC9")  # of microbatches that follow each other
CAUSE_COLOURS: dict[str, str] = {cause.name: cause.colour for cause in TABLE}
HATCHES: dict[str, str] = {cause.name: cause.hatch for cause in TABLE if cause.hatch}

# On a dark ground idle time recedes unless something can be done about it, and busy time stands out most.
DARK_BUSY = "#4FA8E0"
DARK_SERVICES = (DARK_BUSY, "#2F7DB3", "#82C4EE")
DARK_CAUSE_COLOURS: dict[str, str] = {cause.name: cause.dark_colour for cause in TABLE}
