"""Task groups in paths: an id, ``USERGROUP/NAME``, or ``NAME`` in the caller's own user group."""

from starlette.convertors import Convertor, register_url_convertor

PATH = "/task-groups/{reference:task_group}"


class TaskGroupConvertor(Convertor[str]):
    """Matches one or two path segments; names of sub-resources (``tasks``, ``close`` …) win as the second."""

    regex = "[^/]+(?:/[^/]+)?"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("task_group", TaskGroupConvertor())
