"""Colours that people with any colour vision can tell apart (Okabe and Ito), and hatches where grey meets grey."""

BUSY = "#0072B2"
CAUSE_COLOURS: dict[str, str] = {
    "starved": "#E69F00",
    "credit": "#CC79A7",
    "kv_blocked": "#D55E00",
    "upstream": "#B5DFF7",
    "hop": "#009E73",
    "fill": "#D9D9D9",
    "drain": "#9E9E9E",
    "empty": "#F5F5F5",
    "fault": "#000000",
}
HATCHES: dict[str, str] = {"fill": "////", "drain": "\\\\\\\\"}
SERVICES = ("#0072B2", "#004B76", "#2C8CC9")  # of microbatches that follow each other
MEANINGS: dict[str, str] = {
    "starved": "all wait for their previous token",
    "credit": "no credit free",
    "kv_blocked": "no KV room",
    "upstream": "queued or served before",
    "hop": "on the last link",
    "fill": "before its first microbatch",
    "drain": "after its last",
    "empty": "no request in the system",
    "fault": "stage down",
}

# On a dark ground: what is idle without anybody's fault steps back, what is busy stays the strongest.
DARK_BUSY = "#4FA8E0"
DARK_SERVICES = ("#4FA8E0", "#2F7DB3", "#82C4EE")
DARK_CAUSE_COLOURS: dict[str, str] = {
    "starved": "#E69F00",
    "credit": "#CC79A7",
    "kv_blocked": "#E8702A",
    "upstream": "#35607A",
    "hop": "#1FB58A",
    "fill": "#3C4046",
    "drain": "#565B63",
    "empty": "#23262A",
    "fault": "#FF4D4D",
}
