"""The main loop of a worker: receives messages, runs one task after the other, reports how each ended.

It has one thread. While a command runs, the loop polls the agent's socket, the command's pidfd, its
output and the timers. A handler occupies the thread; the ticks of :mod:`mitosis.worker.handlers` then
call the loop.
"""

import os
import select
import signal
import time
from collections import deque

import msgspec

from mitosis.contracts.outcome import FailureKind
from mitosis.contracts.process_starts import start_may_pass
from mitosis.contracts.run_spec import RunSpec
from mitosis.contracts.task import TaskSpec
from mitosis.ipc.messages import (
    Acknowledge,
    CancelTask,
    Configure,
    FollowOutput,
    Goodbye,
    Hello,
    ManagerToWorker,
    OutputTaken,
    Pause,
    Resume,
    RunTask,
    RunTasks,
    Shutdown,
    TakeBack,
    TakenBack,
    TaskNotStarted,
)
from mitosis.worker.channel import WorkerChannel
from mitosis.worker.command import CommandRun, Streams, no_process, not_started
from mitosis.worker.context import task_variables
from mitosis.worker.evidence import Evidence, RunningMark
from mitosis.worker.exchange import Exchange
from mitosis.worker.following import OutputFeed
from mitosis.worker.handlers import HandlerSlot
from mitosis.worker.orphans import Births, ChildBell
from mitosis.worker.output import MemoryOutput, PipeOutput, memory_file
from mitosis.worker.process_limit import PidsGroup, ProcessLimit
from mitosis.worker.process_tree import end_with_all, kill_all_below, kill_below, reap_any
from mitosis.worker.report import Ended, encode_report
from mitosis.worker.report_batch import ReportBatch
from mitosis.worker.scratch import ScratchFolder
from mitosis.worker.settings import WorkerSettings, worker_variables
from mitosis.worker.start_notice import StartNotice
from mitosis.worker.start_wait import StartWait
from mitosis.worker.wakeup import SignalWakeup
from mitosis.worker.whole_output import STALL_SECONDS, WholeOutput

EXIT_OK = 0
EXIT_STUCK = 4
"""A handler still ran after its grace; its attempt has been reported."""

_decode = msgspec.json.Decoder(
    RunSpec
).decode  # made once, in the zygote: 0.5 MB that workers share
_OVERDUE_MARGIN_SECONDS = 2.0
_LEFTOVERS_SECONDS = 5.0
_OWN_ENDS = (None, FailureKind.EXIT_CODE, FailureKind.SIGNAL, FailureKind.HANDLER_ERROR)
"""How a task ends by itself, also because the kernel refused it a process."""
_LONGEST_WAIT_MS = 3_600_000.0  # poll(2) takes an int of milliseconds: at most 24.8 days


class Worker:
    """One worker process. Its CPU set is in force already; :meth:`serve` runs until a Shutdown."""

    def __init__(
        self, settings: WorkerSettings, scratch: ScratchFolder, evidence: Evidence
    ) -> None:
        """Connect to the agent; the zygote reads ``evidence`` when this worker dies."""
        self._wakeup = SignalWakeup()
        self._zygote = os.getppid()
        self._mark = RunningMark(evidence.mark_fd)
        self._settings = settings
        self._cpus = tuple(sorted(os.sched_getaffinity(0)))
        self._group_number = settings.setup.task_group_number
        tail_bytes = settings.setup.output_tail_bytes
        self._streams = Streams(
            os.open(os.devnull, os.O_RDONLY), PipeOutput(tail_bytes), PipeOutput(tail_bytes)
        )
        self._scratch = scratch
        os.environ.update(worker_variables(settings, self._cpus))
        self._environment = dict(os.environ)
        self._handlers = HandlerSlot(
            (
                MemoryOutput(memory_file("stdout"), tail_bytes),
                MemoryOutput(evidence.stderr_fd, tail_bytes),
            ),
            self._on_handler_tick,
            self._end_stuck,
        )
        self._channel = WorkerChannel(settings.setup.endpoint, settings.identity)
        self._feed = OutputFeed(self._channel.offer)
        self._whole = WholeOutput(self._channel.send)
        self._bell = ChildBell()
        self._births = Births()
        limit = settings.setup.max_processes_per_worker
        confined = settings.setup.cpusets is not None
        group = PidsGroup.enter(settings.pids_group, limit, confined=confined)
        self._limit = ProcessLimit(limit, group)
        self._poll = select.poll()
        streams = (self._streams.stdout.read_fd, self._streams.stderr.read_fd)
        for fd in (self._channel.fd, self._wakeup.fd, *streams):
            self._poll.register(fd, select.POLLIN)
        if self._limit.fd is not None:
            self._poll.register(self._limit.fd, select.POLLPRI)
        self._queue: deque[RunTask] = deque()
        self._reports = ReportBatch(self._channel.send)
        self._notice = StartNotice(self._channel.send)
        self._paused = False
        self._shutdown: Shutdown | None = None
        self._ran = 0
        self._renewed_for: str | None = None
        """Why this process must run no other task: the agent starts a new one in its slot."""
        self._current: RunTask | None = None
        self._stoppable: CommandRun | StartWait | HandlerSlot | None = None

    def serve(self) -> int:
        """Run tasks until a Shutdown, or until another process must run the next; return the exit status."""
        slot, generation = self._settings.slot, self._settings.generation
        self._channel.send(Hello(slot, generation, os.getpid(), self._cpus))
        while self._renewed_for is None:
            self._take_messages()
            if self._shutdown is not None:
                break
            if self._queue and not self._paused:
                self._begin_next()
            else:
                self._reports.flush()
                self._scratch.ensure()
                self._wait(None)
        self._reports.flush()
        self._channel.send(Goodbye(slot, generation, self._renewed_for))
        self._channel.close()
        return EXIT_OK

    # --- messages -------------------------------------------------------------------------------

    def _take_messages(self) -> None:
        for message in self._channel.receive():
            self._on_message(message)

    def _on_message(self, message: ManagerToWorker) -> None:  # noqa: C901 - one line per message
        match message:
            case RunTasks(tasks):
                self._queue.extend(tasks)
                return
            case OutputTaken():
                self._whole.taken(message)
                return
            case TakeBack():
                self._mark.withdrawn()
                self._give_back()
                return
            case CancelTask():
                self._cancel(message)
            case Shutdown():
                self._begin_shutdown(message)
            case Pause():
                self._paused = True
            case Resume():
                self._paused = False
            case Configure():
                self._configure(message)
            case FollowOutput():
                self._follow(message)
        self._channel.send(Acknowledge(message.message_id))

    def _give_back(self) -> None:
        """Begin nothing of what this worker holds, and say what that is."""
        self._channel.send(TakenBack(tuple(task.key for task in self._queue)))
        self._queue.clear()

    def _cancel(self, order: CancelTask) -> None:
        text = f"cancelled: {order.reason}" if order.reason else "cancelled"
        if self._current is not None and order.key == self._current.key:
            if self._stoppable is not None:
                self._stoppable.stop(FailureKind.CANCELLED, text, order.grace_seconds)
            self._whole.stop_waiting()
            return
        for task in self._queue:
            if order.key == task.key:
                self._queue.remove(task)
                now = time.time()
                self._report(task, Ended(kind=FailureKind.CANCELLED, message=text, finished_at=now))
                return

    def _begin_shutdown(self, order: Shutdown) -> None:
        self._shutdown = order
        self._queue.clear()
        if not order.graceful and self._stoppable is not None:
            self._whole.stop_waiting()
            text = "the worker was shut down"
            self._stoppable.stop(FailureKind.CANCELLED, text, order.grace_seconds)

    def _configure(self, order: Configure) -> None:
        if order.output_tail_bytes is not None:
            self._streams.stdout.tail_bytes = order.output_tail_bytes
            self._streams.stderr.tail_bytes = order.output_tail_bytes
            self._handlers.set_tail_bytes(order.output_tail_bytes)

    def _follow(self, order: FollowOutput) -> None:
        running = self._current
        if running is None or running.key != order.key:
            return
        if not order.on:
            self._feed.stop()
        elif isinstance(self._stoppable, HandlerSlot):
            self._feed.follow(order.key, self._handlers.streams)
        else:
            streams = (self._streams.stdout, self._streams.stderr)
            self._feed.follow(order.key, streams)

    # --- tasks ----------------------------------------------------------------------------------

    def _begin_next(self) -> None:
        """Run the first task that waits, unless the agent has withdrawn it."""
        self._mark.put(self._queue[0].key)
        if self._mark.withdrawn():  # the record comes first, see mitosis.worker.evidence
            self._mark.take_out()
            self._give_back()
        else:
            self._run(self._queue.popleft())

    def _run(self, task: RunTask) -> None:
        """Run one task to its end and queue its report."""
        self._current = task
        self._births.forget()
        self._limit.begin()
        self._scratch.ensure()
        try:
            spec = _decode(task.spec)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            spec, problem = RunSpec(), f"not a task specification: {error}"
        else:
            problem = "the task names neither a command nor a handler"
        self._say_start(task, spec)
        variables = task_variables(self._group_number, task.key) | spec.variables
        ended: Ended | None
        if spec.handler:
            ended = self._run_handler(spec, variables)
        elif spec.command:
            ended = self._run_given(spec, variables)
        else:
            ended = _not_a_task(problem)
        self._stoppable, self._current = None, None
        self._notice.end(ended.seconds if ended is not None else None)
        if self._feed.on:
            self._feed.stop()
        if ended is None:
            self._mark.take_out()
        else:
            self._mark.clear()
            self._finish(task, ended, at_once=spec.stream_output)

    def _say_start(self, task: RunTask, spec: RunSpec) -> None:
        """Say that a task starts unless it may be over soon; then no result waits until it has ended."""
        overdue = None
        if spec.timeout_seconds is not None:
            overdue = spec.timeout_seconds + spec.kill_grace_seconds + _OVERDUE_MARGIN_SECONDS
            overdue += STALL_SECONDS if spec.stream_output else 0.0
        kind = spec.handler or (spec.command or ("",))[0]
        if self._notice.begin(task.key, kind, overdue, at_once=spec.stream_output):
            self._reports.flush()  # in code in C nothing is sent

    def _say_late_start(self) -> None:
        """Say the start of a task that has run for some milliseconds, and send the results before it."""
        if self._notice.is_due:
            self._reports.flush()
            self._notice.send()

    def _finish(self, task: RunTask, ended: Ended, *, at_once: bool) -> None:
        """Queue its report; send it ``at_once`` if the agent has its output, so that it never runs again."""
        self._count_task(ended)
        if self._shutdown is None or self._shutdown.graceful:
            self._report(task, ended)
            if at_once:
                self._reports.flush()

    def _count_task(self, ended: Ended) -> None:
        if (self._limit.exceeded() or self._limit.hit) and ended.kind in _OWN_ENDS:
            _blame(ended, self._limit)
        self._ran += 1
        limit = self._settings.setup.max_tasks_per_worker
        if limit is not None and self._ran >= limit:
            self._renewed_for = f"max_tasks_per_worker is {limit}"

    def _start_command(
        self, spec: TaskSpec, environment: dict[str, str], streams: Streams
    ) -> CommandRun | Ended | None:
        """Start it, again and again for some seconds if its host has no process; None: given back."""
        wait = StartWait(spec.timeout_seconds)
        while wait.ended is None:
            waited = time.monotonic() - wait.began_at
            try:
                run = CommandRun(spec, environment, self._scratch.path, streams, waited)
            except (OSError, ValueError) as error:
                if not start_may_pass(error):
                    return not_started(spec, environment, error)
                problem = no_process(spec, error)
            else:
                if wait.tried:  # a start may be refused once and then succeed: vfork, then fork
                    self._limit.begin()
                return run
            if not wait.again():
                assert self._current is not None  # noqa: S101 - a command runs for a task
                self._channel.send(TaskNotStarted(self._current.key, problem))
                return None
            self._stoppable = wait
            while not wait.is_over:
                self._wait(wait)
        return wait.ended

    def _run_given(self, spec: RunSpec, variables: dict[str, str]) -> Ended | None:
        """Run a command, with what it reads from standard input, if anything."""
        if spec.input is None:
            return self._run_command(spec, variables, self._streams)
        with Exchange(spec.input.encode(), self._streams) as exchange:
            ended = self._run_command(spec, variables, exchange.streams)
            if ended is not None:
                exchange.conclude(ended)
        return ended

    def _run_command(
        self, spec: TaskSpec, variables: dict[str, str], streams: Streams
    ) -> Ended | None:
        environment = {**self._environment, **spec.environment, **variables}
        self._bell.turn_on()
        run = self._start_command(spec, environment, streams)
        if not isinstance(run, CommandRun):
            return run
        if spec.stream_output and self._current is not None:
            self._whole.begin(self._current.key, (self._streams.stdout, self._streams.stderr))
        self._stoppable = run
        while run.ended is None:
            self._wait(run)
            if self._feed.on:
                self._feed.pump()
            if self._whole.on:
                self._whole.pump()
            if self._limit.exceeded():
                run.stop(FailureKind.PROCESS_LIMIT, self._limit.message, 0.0)
            run.step()
        self._limit.found(run.killed)
        self._renew_for(self._handlers.state.restore_attributes())
        if self._whole.on:
            self._deliver_whole()
        return run.ended

    def _deliver_whole(self) -> None:
        """Wait until the agent has all output of the ended command, or drops it."""
        self._whole.finish()
        self._reports.flush()
        while self._whole.on and self._whole.undelivered:
            self._take_messages()
            due = self._whole.due_at()
            if due is not None and self._whole.on:
                ready = self._poll.poll(max(0.0, due - time.monotonic()) * 1000)
                if any(fd == self._wakeup.fd for fd, _ in ready):
                    self._wakeup.clear()
            self._whole.pump()
        self._whole.end()

    def _run_handler(self, spec: TaskSpec, variables: dict[str, str]) -> Ended:
        self._stoppable = self._handlers
        self._bell.turn_off()
        ended = self._handlers.run(spec, variables, self._scratch.path)
        closed = self._closed_descriptors()
        self._renew_for(self._handlers.spoiled or closed)
        self._end_with_zygote()
        if not self._end_leftovers():
            what = ended.message or "succeeded"
            ended.message = f"{what}; a process it left behind could not be killed"
        return ended

    def _closed_descriptors(self) -> str | None:
        """Take back the wakeup descriptor, which the handler may have set; connect again if need be."""
        left = "descriptors of its worker closed"
        try:
            self._wakeup.turn_on()
            if self._channel.intact:
                return None
        except (OSError, ValueError):
            signal.set_wakeup_fd(-1)
            if self._channel.intact:
                return left
        setting = self._settings
        hello = Hello(setting.slot, setting.generation, os.getpid(), self._cpus)
        self._channel.open_again(setting.last_words_identity, hello)
        return left

    def _end_leftovers(self) -> bool:
        try:
            if not reap_any():
                self._limit.found(len(kill_below(os.getpid())))
            return kill_all_below(_LEFTOVERS_SECONDS)
        except OSError:  # no descriptor is left to look; the zygote does when this process ends
            return False

    def _renew_for(self, left: str | None) -> None:
        if left is not None:
            self._renewed_for = f"a task left {left}"

    def _on_handler_tick(self) -> None:
        """Exchange messages with the agent while a handler runs; reap its orphans."""
        self._end_with_zygote()
        if not self._channel.intact:
            return
        self._say_late_start()
        self._take_messages()
        self._births.reap_orphans()
        if self._limit.exceeded():
            kill_below(os.getpid())
            self._handlers.stop(FailureKind.PROCESS_LIMIT, self._limit.message)
        if self._feed.on:
            self._feed.pump()
        if self._reports.is_due:
            self._reports.flush()
            self._take_messages()

    def _end_with_zygote(self) -> None:
        """End this worker if its zygote has ended and the handler ignored or blocked the kernel's SIGTERM."""
        if os.getppid() != self._zygote:
            end_with_all(signal.SIGTERM)

    def _end_stuck(self, ended: Ended) -> None:
        """Report a handler that did not stop, kill its children and exit."""
        assert self._current is not None  # noqa: S101 - a handler runs for a task
        if self._shutdown is None or self._shutdown.graceful:
            self._report(self._current, ended)
        self._reports.flush()
        self._channel.close()
        kill_all_below(_LEFTOVERS_SECONDS)
        os._exit(EXIT_STUCK)

    def _report(self, task: RunTask, ended: Ended) -> None:
        self._reports.add(encode_report(task, ended, self._settings.slot, self._cpus))

    # --- waiting --------------------------------------------------------------------------------

    def _wait(self, run: CommandRun | StartWait | None) -> None:
        """Wait for a message, output, the end of the command, or the next timer."""
        self._take_messages()  # a send may have consumed the edge of the socket's descriptor
        fds = run.fds() if run is not None else ()
        self._pause_full_streams()
        for fd in fds:
            self._poll.register(fd, select.POLLIN)
        try:
            ready = self._poll.poll(self._wait_ms(run))
        finally:
            for fd in fds:
                self._poll.unregister(fd)
        for fd, _ in ready:
            if fd == self._wakeup.fd:
                self._wakeup.clear()
            for stream in (self._streams.stdout, self._streams.stderr):
                if fd == stream.read_fd:
                    stream.read()
        self._say_late_start()
        if self._reports.is_due:
            self._reports.flush()

    def _pause_full_streams(self) -> None:
        """Poll only those streams that may be read; a command waits while its stream is full."""
        for stream in (self._streams.stdout, self._streams.stderr):
            self._poll.modify(stream.read_fd, 0 if stream.paused else select.POLLIN)

    def _wait_ms(self, run: CommandRun | StartWait | None) -> float | None:
        due = [run.wakes_at(), self._limit.wakes_at()] if run is not None else []
        due += [self._reports.due_at(), self._notice.due_at()]
        if self._feed.on:
            due.append(self._feed.due_at())
        if self._whole.on:
            due.append(self._whole.due_at())
        times = [at for at in due if at is not None]
        if run is None and (self._shutdown is not None or (self._queue and not self._paused)):
            return 0
        if not times:
            return None
        return min(max(0.0, min(times) - time.monotonic()) * 1000, _LONGEST_WAIT_MS)


def _blame(ended: Ended, limit: ProcessLimit) -> None:
    """Make it the end of a task that was refused a process, and so may have done half of its work."""
    message = limit.message if ended.message is None else f"{limit.message}; {ended.message}"
    ended.kind, ended.message, ended.result = FailureKind.PROCESS_LIMIT, message, None


def _not_a_task(message: str) -> Ended:
    now = time.time()
    return Ended(kind=FailureKind.NOT_STARTED, message=message, started_at=now, finished_at=now)
