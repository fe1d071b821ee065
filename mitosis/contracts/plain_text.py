"""What a name may not have; light, because worker processes import it."""


def unprintable(text: str) -> str | None:
    """Return the first character that controls a terminal, changes the direction of text or shows nothing."""
    return next((char for char in text if not char.isprintable()), None)
