"""The resident kernel on a device: its two builds, how many blocks stay, its launches, and how they fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from graphrun.backends.device import A, Device, Memory, entries
from graphrun.backends.mega import (
    ENDS,
    STAGE,
    TOKENS,
    WAITS,
    Address,
    Launch,
    Step,
    launches,
    line_bytes,
    table,
)
from graphrun.core.errors import BackendError
from graphrun.core.program import Program

IMAGES = {"one": "mega_one.c", "few": "mega_few.c"}  # of steps of one token, and of a few
ONE, FEW, LINE = 0, 1, 2  # which builds have a kernel, as in kernels/gpu/table.h
HAVE = {"one": (ONE, LINE), "few": (ONE, FEW)}
ARRIVED, FAILED, WHERE, ABSENT, REACHED = 0, 64, 65, 66, 128  # words of the state, as in kernels/gpu/mega.c
LEAST_BLOCKS = 16  # with fewer a launch for every call is as good
TRIES = 3  # of a self-test with as many blocks
BARRIERS = 64  # of a self-test
NOTHING = 0xFFFF  # a call's kernel that only its barrier matters of
OFF = "every call is launched by itself"
Image = Callable[[str], bytes]  # the code object of a source file
Say = Callable[[str], None]


class Build:
    """One build of the kernel: its function, shared memory, and the places of the kernels that it has bodies of."""

    def __init__(self, device: Device, image: bytes, have: tuple[int, ...]) -> None:
        self.module = device.module(image)
        self.function = device.function(self.module, "mega")
        address, nbytes = device.constant(self.module, "mega_sizes")
        sizes = np.empty(nbytes // 4, np.uint32)
        device.download(address, sizes)
        self.threads, self.lds, stage, self.waves = (int(n) for n in sizes)
        assert stage == STAGE.itemsize
        found = enumerate(entries(device, self.module, "mega_table"))
        self.places = {name: place for place, (name, _, when) in found if when in have}


class Resident:
    """The kernel with as many blocks as stay on the device together, which `test` finds out."""

    def __init__(self, device: Device, image: Image, blocks: int, polls: int) -> None:
        self.device, self.image, self.blocks, self.polls = device, image, blocks, polls
        self.state = Memory.zeros(device, 4 * (REACHED + blocks))
        self.arrived = 0  # arrivals at barriers so far
        self.off: set[Build] = set()  # builds that have failed
        self.pass_over: int | None = None  # launches before the one to be recorded; None: none is
        self.tape: Tape | None = None  # of that launch

    @classmethod
    def opened(cls, device: Device, image: Image, say: Say) -> Resident | None:
        """The kernel after its self-test, or None if there is none that works, which `say` is told."""
        try:
            found = cls(device, image, device.blocks, device.polls)
            return found if found.test() else None
        except BackendError as error:
            say(f"no resident kernel: {error.message}; {OFF}")
            return None

    def test(self) -> bool:
        """Find a number of blocks that are there at once, halving it until barriers pass; False if there is none."""
        empty = _barriers(BARRIERS)
        stages = Memory.of(self.device, empty.view(np.uint8))
        while self.blocks >= LEAST_BLOCKS or self.blocks == self.device.blocks:
            if self._passes(stages, len(empty)):
                return True
            self.device.clear(self.state.address, self.state.nbytes)
            self.arrived, self.blocks = 0, self.blocks // 2
        return False

    def _passes(self, stages: Memory, calls: int) -> bool:
        """Whether launches of nothing but barriers end; BackendError where a few blocks cannot even be launched."""
        try:
            for _ in range(TRIES):
                self.launch(self.one, stages.address, calls, 0, 0)
                self.passed(BARRIERS)
            return not self.failed()
        except BackendError:
            if self.blocks < 2 * LEAST_BLOCKS:
                raise
            return False

    @cached_property
    def one(self) -> Build:
        """For steps of one token."""
        return Build(self.device, self.image(IMAGES["one"]), HAVE["one"])

    @cached_property
    def few(self) -> Build:
        """For steps of up to 16 tokens."""
        return Build(self.device, self.image(IMAGES["few"]), HAVE["few"])

    def build(self, program: Program) -> Build | None:
        """The build for a program; None for one that runs call by call."""
        if program.tokens > TOKENS:
            return None
        found = self.one if program.tokens == 1 else self.few
        return None if found in self.off else found

    def launch(
        self, build: Build, stages: int, calls: int, scratch: int, line: int, pos: int = 0, trace: int = 0
    ) -> None:
        """Run the calls of a table. `line` is the bytes of shared memory for activations."""
        sizes, limits = calls | self.blocks << 32, self.arrived | self.polls << 32
        arguments = (stages, scratch, self.state.address, trace, sizes, limits, pos)
        self.device.launch_together(build.function, self.blocks, build.lds + line, arguments, build.threads)

    def is_recorded(self) -> bool:
        """Whether the next launch is the one to be recorded; counts it."""
        now = self.pass_over == 0
        if self.pass_over is not None:
            self.pass_over -= 1
        return now

    def barrier_seconds(self) -> float:
        """Seconds of a barrier between calls that do nothing, by the device's clock; BackendError where one fails."""
        times = []
        for count in (BARRIERS, 2 * BARRIERS):
            stages = Memory.of(self.device, _barriers(count).view(np.uint8))
            launch = partial(self.launch, self.one, stages.address, count + 1, 0, 0)
            seconds = []
            for _ in range(TRIES):
                seconds.append(self.device.timed(launch))
                self.passed(count)
            times.append(min(seconds))
        return (times[1] - times[0]) / BARRIERS

    def passed(self, barriers: int) -> None:
        """Count the arrivals of a launch."""
        self.arrived = (self.arrived + barriers * self.blocks) % (1 << 32)

    def failed(self) -> bool:
        """Whether a launch has given up waiting; reads the device."""
        return bool(self.state.read(4 * FAILED, 4).view(np.uint32)[0])

    def give_up(self, steps: ResidentSteps) -> str:
        """What is known of a launch that gave up: segment, call, and what did not arrive. Makes ready for the next."""
        words = self.state.read(0, self.state.nbytes).view(np.uint32)
        self.device.clear(self.state.address, self.state.nbytes)
        self.arrived = 0
        self.off.add(steps.build)
        missing = np.flatnonzero(words[REACHED : REACHED + self.blocks] == 0)
        who = f"workgroup {missing[0]}" if len(missing) == 1 else f"{len(missing)} workgroups"
        return f"{steps.place(int(words[WHERE]))}: {who} of {self.blocks} did not arrive"


def _barriers(count: int) -> A:
    """A table of calls that do nothing, with so many barriers between them."""
    found = np.zeros(count + 1, STAGE)
    found["kernel"], found["flags"], found["barriers"] = NOTHING, ENDS | WAITS, np.arange(count + 1)
    found["flags"][0], found["flags"][-1] = ENDS, WAITS
    return found


@dataclass(frozen=True, eq=False)
class Tape:
    """When each block began and ended each call of a launch, in seconds from the first: [blocks, calls, 2]."""

    program: Program
    steps: tuple[Step, ...]
    times: A


class ResidentSteps:
    """The launches of a program's step."""

    def __init__(
        self, resident: Resident, build: Build, program: Program, parts: list[tuple[Launch, Memory | None]]
    ) -> None:
        self.resident, self.build, self.program, self.parts = resident, build, program, parts
        self.line = line_bytes(program)

    @classmethod
    def of(cls, resident: Resident, program: Program, records: A, matrix: Address) -> ResidentSteps | None:
        """The launches of a program whose records are these; None where the kernel runs nothing of it."""
        build = resident.build(program)
        if build is None:
            return None
        found: list[tuple[Launch, Memory | None]] = []
        for launch in launches(program, build.places.__contains__):
            stages = None
            if launch.single is None:
                made = table(program, launch.steps, records, build.places, matrix, resident.blocks, build.waves)
                stages = Memory.of(resident.device, made.view(np.uint8))
            found.append((launch, stages))
        return cls(resident, build, program, found) if any(stages for _, stages in found) else None

    def run(self, scratch: int, pos: int, single: Callable[[int], None]) -> None:
        """Make the launches; `single` makes that of one call."""
        for launch, stages in self.parts:
            if stages is None:
                assert launch.single is not None
                single(launch.single)
            else:
                traced = self.resident.is_recorded()
                nbytes = 16 * self.resident.blocks * len(launch.steps)
                trace = Memory.zeros(self.resident.device, nbytes) if traced else None
                at = trace.address if trace else 0
                self.resident.launch(self.build, stages.address, len(launch.steps), scratch, self.line, pos, at)
                self.resident.passed(launch.barriers)
                if trace:
                    self._keep(launch, trace.read(0, nbytes))

    def _keep(self, launch: Launch, raw: A) -> None:
        ticks = raw.view(np.uint64).reshape(self.resident.blocks, len(launch.steps), 2)
        first = ticks[ticks > 0].min() if ticks.any() else np.uint64(0)
        seconds = np.where(ticks > 0, (ticks - first).astype(np.float64) * self.resident.device.tick, np.nan)
        self.resident.tape = Tape(self.program, launch.steps, seconds)

    @property
    def barriers(self) -> int:
        """How often workgroups wait for each other in a step."""
        return sum(launch.barriers for launch, _ in self.parts)

    def place(self, stage: int) -> str:
        """In words, which call a launch was about to begin when it gave up, and which should have ended."""
        launch = next(launch for launch, stages in self.parts if stages and stage < len(launch.steps))
        index = launch.steps[stage].call
        call, before = self.program.calls[index], self.program.calls[launch.steps[max(stage - 1, 0)].call]
        where = f"call {index} ({call.label} of {call.scope or 'the head'}, {call.span})"
        return f"segment {call.segment}, {where} waited in vain for {before.label} ({before.span})"
