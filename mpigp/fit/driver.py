"""A fit from its data to its end, on a communicator that may lose ranks on the way.

An attempt reads the rows, prepares the fit or continues it, iterates, and saves. When ranks fail, the others shrink the
communicator and make another attempt, which continues from the partner copies in memory, from the checkpoint, or from
the beginning: with the same bits in each case.
"""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from mpigp.data.columns import check_rows, listed, note_of, tell
from mpigp.data.datasets import DataSets
from mpigp.errors import InputError, OutputError
from mpigp.files.atomic import check_writable, discard_parts, is_stream, stamp
from mpigp.files.model_file import open_model
from mpigp.files.provenance import provenance
from mpigp.fit import checkpoint
from mpigp.fit.dry_run import dry_run, row_numbers
from mpigp.fit.loop import Handler
from mpigp.fit.options import Options, RunOptions, with_numbers
from mpigp.fit.partner_copies import PartnerCopies
from mpigp.fit.progress import Metrics, Progress
from mpigp.fit.setup import PreparedFit, prepare
from mpigp.fit.stopping import Schedule, StopRequests
from mpigp.fit.validation import Validation, ValidationRows
from mpigp.mpi import memory
from mpigp.mpi.communicator import raise_on_all_ranks
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.mpi.heartbeat import Heartbeat
from mpigp.mpi.processes import can_survive, own_peak_memory, say
from mpigp.mpi.rows import EmptyColumn
from mpigp.mpi.ulfm import confirm, is_failure, survivors
from mpigp.types import Comm

Source: TypeAlias = Callable[[Comm], AbstractContextManager[DataSets]]
Finish: TypeAlias = Callable[[Comm, PreparedFit], None]


class RanksLost(Exception):
    """Ranks failed, and the run is not to go on without them; `saved` tells whether it has written a checkpoint."""

    def __init__(self, lost: list[int], saved: bool) -> None:
        super().__init__(f"rank {', '.join(map(str, lost))} was lost")
        self.lost, self.saved = lost, saved


class Driver:
    """Runs one fit on all ranks of a communicator; all methods are collective.

    source : opens the rows on this rank, given the communicator; opened again after a failure
    options : what to learn, checked.   run : what happens beside the iterations
    inputs : files that the outputs must not replace
    validation_source : opens the rows to validate by, where `options.validate` names a file
    """

    def __init__(self, comm: Comm, source: Source, options: Options, run: RunOptions,
                 inputs: tuple[str, ...] = (), validation_source: Source | None = None) -> None:  # fmt: skip
        self.comm, self.source, self.options, self.run_options, self.inputs = comm, source, options, run, inputs
        self.validation_source = validation_source
        self.output = run.output
        self.stops = StopRequests(comm, run.time_limit, run.signals)
        if self.stops.signals is not None and run.output is not None and comm.rank == 0:
            self.stops.signals.clean_up = partial(discard_parts, run.output)
        self.checkpoints = Schedule(run.checkpoint_every)
        self.partners = PartnerCopies() if run.on_failure == "recover" and can_survive() else None
        self.lost: list[int] = []  # the ranks (of MPI_COMM_WORLD) that are not in `comm` any more
        self.peak_memory, self.streamed = 0, False  # the largest of a rank, and whether rows stayed in their file
        self.made: dict[str, str] = {}  # how the model was made, for the attributes of its file
        self.validation: Validation | None = None  # of the last attempt, where there are rows to validate by
        self._inducing: int | None = None  # of the fit, where their number was left to it
        self._data: list[tuple[str, str]] = []  # where rows are, and their fingerprint, of an earlier attempt
        self._failed_at = 0.0  # when the first of the ranks failed that have not been recovered from
        self._before = stamp(run.output) if run.output else None  # a file that differs is of this run

    def run(self, finish: Finish = lambda comm, prepared: None) -> PreparedFit:
        """Run the fit to its end; `finish` is called there by all ranks, and again where ranks fail meanwhile."""
        with ExitStack() as stack:
            heartbeat: Heartbeat | None = None
            while True:
                try:
                    if heartbeat is None and self.comm.size > 1 and self.run_options.stall_timeout != 0:
                        heartbeat = stack.enter_context(closing(Heartbeat(self.comm, self.run_options.stall_timeout)))
                    with ExitStack() as files:
                        return self._attempt(files, finish)
                except Exception as error:
                    gone = self._shrink(error)
                if heartbeat is not None:
                    heartbeat.forget(gone)

    def dry_run(self) -> dict[str, Any]:
        """Read and check the rows; print and return what the fit would take."""
        with ExitStack() as files:
            _, Y, held, choice = self._read(files)
            choice.tell(self.comm)
            sizes = Y.n, self._q, Y.columns, 0 if held is None else held.Y.n
            return dry_run(self.options, self.comm, sizes, choice.stream, self._keeps_copies)

    @property
    def _keeps_copies(self) -> bool:
        return self.partners is not None and self.comm.size > 1

    def _shrink(self, error: Exception) -> list[int]:
        """Go on with the ranks that are left; return those that are gone, or raise where the error is no failure."""
        if not (can_survive() and is_failure(self.comm, error)):
            raise error
        self._failed_at = self._failed_at or time.monotonic()
        self.comm, gone = survivors(self.comm, error)
        if not gone:
            raise error
        self.lost += gone
        if self.partners is None:
            saved = self.output is not None and stamp(self.output) not in (None, self._before)
            if self.comm.rank == 0 and self.output is not None:
                discard_parts(self.output)
            raise RanksLost(gone, saved and self.run_options.on_failure == "checkpoint") from error
        self.stops.comm = self.comm
        if self.comm.rank == 0:
            say(f"rank {', '.join(map(str, gone))} was lost: going on with {self.comm.size}")
        return gone

    def _attempt(self, files: ExitStack, finish: Finish) -> PreparedFit:
        """Read, prepare or continue, iterate, save. `files` are closed at its end."""
        with raise_on_all_ranks(self.comm):
            self._check_outputs()
        X, Y, held, choice = self._read(files)
        prepared = self._continue(X, Y, held)
        self.validation = None if held is None else Validation(prepared, held, self.options)
        self.made = provenance(self.comm, self.options.threads, self.run_options.made_by)
        choice.tell(self.comm)
        tell(*self._notes if self.comm.rank == 0 else ())
        self._iterate(prepared)
        self._save(prepared, at_end=True)
        self.stops.finish()
        finish(self.comm, prepared)
        self.peak_memory, self.streamed = max(self.comm.allgather(own_peak_memory())), choice.stream
        confirm(self.comm)  # so that all ranks end here, or none
        return prepared

    def _check_outputs(self) -> None:
        """Refuse outputs that cannot be written, on rank 0."""
        others = list(self.inputs)
        for path in (self.output, self.run_options.metrics) if self.comm.rank == 0 else ():
            if path is not None:
                if path != self.run_options.metrics or not is_stream(path):
                    check_writable(path, *others)
                others.append(path)
        if self.comm.rank != 0 or self.output is None:
            return
        older = self._before is not None and stamp(self.output) == self._before
        if older and not (self.run_options.resume or self.run_options.overwrite):
            remedy = "choose another path, `overwrite` it, or `resume` its fit"
            raise InputError(f"{self.output}: there is a model already: {remedy}")
        if self.lost:
            discard_parts(self.output)

    def _read(
        self, files: ExitStack
    ) -> tuple[DistributedRows | None, DistributedRows, ValidationRows | None, memory.Choice]:
        """Return the rows of all ranks, X and Y and those to validate by, and whether they are in memory."""
        options, asked = self.options, self.run_options.rows_in_memory
        with raise_on_all_ranks(self.comm):
            if options.missing and asked == "stream":
                raise InputError("rows_in_memory: stream is not for rows with missing entries: choose all or auto")
            sets, held = self._split(files, files.enter_context(self.source(self.comm)))
            q = options.latent if sets.X is None else sets.X.shape[1]
            assert q is not None
            self.options = options = with_numbers(options, q, None if sets.X is None else sets.columns.get("x"))
        own = sets.share(self.comm)
        numbers = own.rows * row_numbers(options, q, sets.d, self._keeps_copies)
        numbers += 0 if held is None else held.share(self.comm).rows * (q + sets.d)
        choice = memory.choose(self.comm, "all" if options.missing else asked, 8 * numbers)
        self._where, self._q, self._columns = sets.where, q, sets.columns
        self._notes = [] if held is None else [note_of(held.X), note_of(held.Y)]
        X, Y = self._distributed(sets, choice.stream)
        validation = None
        if held is not None:
            inputs, outputs = self._distributed(held, choice.stream)
            assert inputs is not None
            validation = ValidationRows(inputs, outputs, held.where)
        if not choice.stream:
            files.close()
        return X, Y, validation, choice

    def _split(self, files: ExitStack, sets: DataSets) -> tuple[DataSets, DataSets | None]:
        """Return the rows to learn from, and those to validate by, where there are some."""
        if isinstance(self.options.validate, float):
            return sets.split(self.options.validate, self.options.seed)
        if self.validation_source is None:
            return sets, None
        learned = sets.Y.file.filename
        held = files.enter_context(self.validation_source(self.comm)).matched(sets.columns, learned)
        assert sets.X is not None and held.X is not None
        check_rows(held.X, sets.X.shape[1], f"the inputs of {learned}")
        check_rows(held.Y, sets.d, f"the outputs of {learned}")
        return sets, held

    def _distributed(self, sets: DataSets, stream: bool) -> tuple[DistributedRows | None, DistributedRows]:
        """Return X and Y of all ranks, in memory or streamed."""
        with raise_on_all_ranks(self.comm):
            X, Y = sets.rows(sets.share(self.comm), stream, self.options.missing)
        inputs = None if X is None else DistributedRows(self.comm, sets.n, X)
        return inputs, DistributedRows(self.comm, sets.n, Y)

    def _continue(self, X: DistributedRows | None, Y: DistributedRows, held: ValidationRows | None) -> PreparedFit:
        """Return the fit at its start, or where an earlier attempt or run left it."""
        holders = self.partners.holders(self.comm) if self.partners is not None and self.lost else None
        saved = holders is None and self._has_checkpoint()
        try:
            prepared = prepare(
                X, Y, self.options, saved or holders is not None, self._known_inducing(saved, holders is not None)
            )
        except EmptyColumn as error:
            names = self._columns.get("y")
            named = EmptyColumn(error.column, listed([names[error.column]])) if names else error
            raise InputError(f"{self._where}{named}") from error
        data = [(self._where or "the data: ", prepared.identity["data"])]
        if held is not None:
            data.append((held.where, held.fingerprint()))
            prepared.identity["validation"] = data[-1][1]
        prepared = prepared._replace(columns=self._columns)
        with raise_on_all_ranks(self.comm):
            for (where, now), (_, before) in zip(data, self._data or data, strict=True):
                if now != before:
                    raise InputError(f"{where}has changed since this run began to read it: start it again")
        self._data, self._inducing = data, prepared.identity["inducing"]
        if holders is not None and self.partners is not None:
            self.partners.restore(self.comm, prepared.fit, holders)
        elif saved:
            assert self.output is not None
            with raise_on_all_ranks(self.comm), open_model(self.output) as model:
                checkpoint.load(model, prepared, Y.share)
            damaged = f"{self.output}: the checkpoint is damaged: start anew without `resume`"
            checkpoint.evaluate_at_solution(prepared, damaged)  # before the work starts
        if self._failed_at:
            place = "copies in memory" if holders is not None else "the checkpoint" if saved else "the beginning"
            if self.comm.rank == 0:
                seconds = time.monotonic() - self._failed_at
                say(f"recovered in {seconds:.2f} s: going on from {place}, at iteration {prepared.fit.iteration}")
            self._failed_at = 0.0
        return prepared

    def _known_inducing(self, saved: bool, copied: bool) -> int | None:
        """Return the number of inducing points of the fit that is continued, if the options leave it open."""
        if self.options.grow is None or not saved:
            return self._inducing if copied else None
        assert self.output is not None
        with raise_on_all_ranks(self.comm), open_model(self.output) as model:
            m = len(model.parameters().Z)
        return m

    def _has_checkpoint(self) -> bool:
        """Return whether there is a checkpoint to continue from, as rank 0 sees it."""
        resume, output = self.run_options.resume, self.output
        if output is None or not (resume or self.lost):
            return False
        message = np.array([os.path.exists(output) if resume else stamp(output) not in (None, self._before)])
        self.comm.Bcast(message)
        confirm(self.comm)
        return bool(message[0])

    def _iterate(self, prepared: PreparedFit) -> None:
        """Iterate, with the handlers of this run."""
        run, fit = self.run_options, prepared.fit
        with ExitStack() as stack:
            handlers: list[Handler] = []
            if self.validation is not None:
                self.validation.begin()
                handlers.append(self.validation)  # the first, so that the others have its scores
            if self.comm.rank == 0 and run.progress is not None:
                handlers.append(stack.enter_context(closing(Progress(run.progress))))
            if self.comm.rank == 0 and run.metrics is not None:
                handlers.append(stack.enter_context(closing(Metrics(run.metrics, fit.iteration))))
            if (callback := run.callback) is not None:
                handlers.append(lambda fit: self.stops.request(callback(fit)))
            handlers.append(lambda fit: self._save(prepared))
            if (partners := self.partners) is not None:
                handlers.append(lambda fit: partners.refresh(self.comm, fit))
            if run.signals or run.callback is not None or run.time_limit < float("inf"):
                handlers.append(self.stops)
            self.stops.begin()
            fit.run(handlers)
        if self.validation is not None:
            self.validation.finish()

    def _save(self, prepared: PreparedFit, at_end: bool = False) -> None:
        if self.output is not None and (at_end or self.checkpoints.due(self.comm, prepared.fit.iteration)):
            if self.validation is not None:
                self.validation.rows.check_fingerprint(prepared.identity["validation"])
            try:
                checkpoint.save(self.output, self.comm, prepared, self.made)
            except OutputError as error:
                if at_end:
                    raise
                if self.comm.rank == 0:
                    say(f"{error}: the fit goes on without this checkpoint")
