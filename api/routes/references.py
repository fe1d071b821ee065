"""How a task group is written in a path: its id, ``group/name``, or ``name`` in the caller's own group."""

from starlette.convertors import Convertor, register_url_convertor

PATH = "/task-groups/{reference:task_group}"


class TaskGroupConvertor(Convertor[str]):
    """One path segment or two. The names of sub-resources (``tasks``, ``close`` …) win as a second one."""

    regex = "[^/]+(?:/[^/]+)?"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("task_group", TaskGroupConvertor())
