"""The project that the pipeline tests: splitting amounts of money without losing a cent."""


def split(cents: int, people: int) -> list[int]:
    """Equal shares; what is left over goes to the first, one cent each."""
    share, left = divmod(cents, people)
    return [share + (person < left) for person in range(people)]
