"""A stateless 64-bit hash for tables that the planner computes, equal on every machine."""

MASK = (1 << 64) - 1


def mix(x: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)
