"""The function, and the loop that calls it. This file follows the others."""


class Memory:
    """A shared memory that grows, and does not shrink."""

    def __init__(self, descriptor, protection):
        self.descriptor, self.protection = descriptor, protection
        self.size = 0
        self.map = None

    def at_least(self, size):
        if size > self.size:
            self.size = os.fstat(self.descriptor).st_size
            # A map that a column still refers to ends with it.
            self.map = mmap.mmap(self.descriptor, self.size, prot=self.protection)
        return self.map

    def grown(self, size):
        if size > self.size:
            size = max(size, 2 * self.size)
            # Allocated now: a page that can't be had later would be a signal instead of an error.
            os.posix_fallocate(self.descriptor, 0, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        return self.at_least(size)


class Worker:
    def __init__(self, connection):
        self.connection = connection
        _, descriptors, _, _ = socket.recv_fds(connection, 1, 2, socket.MSG_CMSG_CLOEXEC)
        self.arguments = Memory(descriptors[0], mmap.PROT_READ)
        self.results = Memory(descriptors[1], mmap.PROT_READ | mmap.PROT_WRITE)
        self.function = None
        self.aggregate = None
        self.table = None
        self.columns = None
        self.kinds, self.kind, self.rows = [], {}, 0

    def run(self):
        while True:
            request = self.connection.recv(REQUEST.size, socket.MSG_WAITALL)
            if len(request) < REQUEST.size:
                return
            what, _, rows, size, length = REQUEST.unpack(request)
            memory = self.arguments.at_least(size)
            if what == START:
                reply = self.start(json.loads(bytes(memory[:length])))
            else:
                reply = self.call(what, memory, rows)
            self.connection.sendall(reply)

    def reply(self, what, row=NO_ROW, length=0):
        return REQUEST.pack(what, 0, row, self.results.size, length)

    def failed(self, row, reason):
        data = last_bytes(reason, REASON_BYTES_MAX)
        self.results.grown(HEADER_BYTES + len(data))[HEADER_BYTES : HEADER_BYTES + len(data)] = data
        return self.reply(FAILED, row, len(data))

    def start(self, told):
        self.results.grown(HEADER_BYTES)
        try:
            limit(told["memory"])
            if told["mode"] == "columns":
                self.columns = Columns()
            self.function = load(told)
            if told["aggregate"]:
                self.aggregate = Aggregate(self.function, told, self.columns)
            if told["table"] and told["table"]["constants"] is not None:
                is_keyed = told["table"]["state"] is not None
                make = Keyed if is_keyed else Table
                self.table = make(self.function, told, self.columns)
        except LoadError as error:
            return self.failed(NO_ROW, f"{error.line} 0 {str(error)[:MESSAGE_MAX]}")
        except BaseException as error:
            line, column = line_of(error, told["file"]), 0
            message = said(error)
            if isinstance(error, SyntaxError) and error.filename == told["file"]:
                line, column = error.lineno or 0, error.offset or 0
                message = f"{type(error).__name__}: {error.msg}"
            return self.failed(NO_ROW, f"{line} {column} {message[:MESSAGE_MAX]}")
        self.kinds, self.kind = told["arguments"], told["result"]
        return self.reply(READY, 1 if hasattr(self.function, "retract") else 0)

    def call(self, what, memory, rows):
        try:
            if self.aggregate:
                writer = self.watched(self.aggregate.call, what, memory, rows)
            elif self.table:
                writer = self.watched(self.table.call, memory, rows)
            elif self.columns:
                writer = self.call_columns(memory, rows)
            else:
                writer = self.call_rows(memory, rows)
            return self.write(writer)
        except RowError as error:
            return self.failed(error.row, error.reason)
        except StateError as error:
            return self.failed(ANY_ROW, str(error))
        except BaseException as error:
            return self.failed(NO_ROW, traceback_of(error))

    def watched(self, call, *arguments):
        """Calls with the place for the row that it is at."""
        progress = memoryview(self.results.map)[:8].cast("q")
        try:
            return call(*arguments, progress)
        finally:
            progress.release()

    def call_rows(self, memory, rows):
        function, progress = self.function, memoryview(self.results.map)[:8].cast("q")
        reader = Reader(memoryview(memory))
        columns = [reader.column(kind) for kind in self.kinds]
        arguments = zip(*columns) if columns else itertools.repeat((), rows)
        results = []
        append = results.append
        row = 0
        try:
            for row, values in enumerate(arguments):
                # Who looks after this process has died knows which row it was.
                progress[0] = row
                append(function(*values))
        except BaseException as error:
            raise RowError(row, traceback_of(error)) from None
        finally:
            progress.release()
        return written(self.kind, results)

    def call_columns(self, memory, rows):
        columns = self.columns
        buffer = columns.pa.py_buffer(memory)
        arguments = columns.read(buffer, self.kinds)
        # Without arguments a function can't know how many rows there are.
        result = self.function(*arguments) if arguments else self.function(rows)
        column = columns.of(result, columns.type_of(self.kind))
        if len(column) != rows:
            raise ValueError(f"it has returned {len(column)} values for {rows} rows")
        writer = Writer()
        columns.write(writer, self.kind, column)
        return writer

    def write(self, writer):
        end = HEADER_BYTES + NODE.size * len(writer.nodes)
        places = []
        for data in writer.buffers:
            size = memoryview(data).nbytes
            end = -(-end // ALIGNMENT) * ALIGNMENT
            places.append((end, size))
            end += size
        memory = self.results.grown(end)
        for number, (length, null_count, *buffers) in enumerate(writer.nodes):
            of_buffers = (places[at] if at is not None else (0, 0) for at in buffers)
            node = (length, null_count, *itertools.chain.from_iterable(of_buffers))
            NODE.pack_into(memory, HEADER_BYTES + NODE.size * number, *node)
        for data, (at, size) in zip(writer.buffers, places):
            if size:
                memory[at : at + size] = memoryview(data).cast("B")
        return self.reply(RESULT, NO_ROW, end)


def last_bytes(text, most):
    """The end of a text, which names the error."""
    return text.encode(errors="replace")[-most:].decode(errors="ignore").encode()


def limit(memory):
    """Bounds the memory of this process. Shared memory does not count."""
    if memory:
        import resource

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        wanted = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


def line_of(error, file):
    """The last line of the function's file that an error has passed; 0 if there is none."""
    line, frames = 0, error.__traceback__
    while frames is not None:
        if frames.tb_frame.f_code.co_filename == file:
            line = frames.tb_lineno
        frames = frames.tb_next
    return line


def load(told):
    """The function of a text."""
    text, file, name = told["text"], told["file"], told["handler"]
    # Tracebacks show the lines.
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    module = types.ModuleType("slackwater_function")
    module.__file__ = file
    sys.modules[module.__name__] = module
    exec(compile(text, file, "exec"), module.__dict__)
    for known in (name, name.lower()):
        function = getattr(module, known, None)
        if callable(function):
            check(function, known, told)
            return function
    is_class = told["aggregate"] or (told["table"] and told["table"]["state"] is not None)
    form = f"class {name}: …" if is_class else f"def {name}(…)"
    raise NameError(f"the text does not define '{name}': add {form}, or WITH ('handler' = '…')")


class LoadError(Exception):
    """What is wrong with a function, and its line."""

    def __init__(self, line, message):
        super().__init__(message)
        self.line = line


def check(function, name, told):
    """Checks that SQL can call a function, or make groups of a class."""
    line = line_of_definition(name, told["text"])
    count = len(told["arguments"])
    if not count and told["mode"] == "columns":
        count = 1  # The number of rows.
    if told["table"]:
        return check_table(function, name, told["table"], line)
    if not told["aggregate"]:
        if isinstance(function, type):
            raise LoadError(line, f"'{name}' is a class, for CREATE AGGREGATE FUNCTION; a function is a def")
        return check_arguments(function, name, count, line)
    if not isinstance(function, type):
        raise LoadError(line, f"'{name}' is not a class: CREATE FUNCTION, without AGGREGATE, is for a def")
    methods = {"accumulate": count, "merge": 1, "finish": 0}
    missing = [method for method in methods if not hasattr(function, method)]
    if missing:
        form = "it needs accumulate(self, …), merge(self, other) and finish(self)"
        raise LoadError(line, f"class '{name}' has no {' and no '.join(missing)}: {form}")
    group = function()
    if hasattr(function, "retract"):
        methods["retract"] = count
    for method, count in methods.items():
        own_line = line_of_code(getattr(function, method)) or line
        check_arguments(getattr(group, method), method, count, own_line)
    try:
        loaded(dumped(group))
    except StateError as error:
        raise LoadError(line, str(error)) from None


def check_table(function, name, table, line):
    """Checks that SQL can call a function that returns a table."""
    constants = constants_of(table)
    if table["state"] is None:
        if isinstance(function, type):
            raise LoadError(line, f"'{name}' is a class, for a function with STATE; without it, it is a def")
        if constants is not None:
            check_arguments(
                function, name, len(table["inputs"][0]), line, constants, table["parameters"]
            )
        return
    form = "it needs on_row(self, state, row, out)"
    if not isinstance(function, type):
        raise LoadError(line, f"'{name}' is not a class, and has STATE: {form}")
    if not hasattr(function, "on_row"):
        raise LoadError(line, f"class '{name}' has no on_row: {form}")
    methods = {"on_row": 4, "on_time": 4, "on_new_key": 2}
    for method, count in methods.items():
        if hasattr(function, method):
            of_class = getattr(function, method)
            own_line = line_of_code(of_class) or line
            if reason := never_runs(of_class, True):
                raise LoadError(own_line, f"{method} {reason}")
            check_arguments(of_class, method, count, own_line)
    if constants is not None:
        check_arguments(function, name, 0, line, constants, table["parameters"])


def check_arguments(function, name, count, line, constants={}, parameters=()):
    import inspect

    if reason := never_runs(function, False):
        raise LoadError(line_of_code(function) or line, f"{name} {reason}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # Not all of those in C have one.
    needed = [one.name for one in signature.parameters.values() if one.default is one.empty]
    left_out = [name for name in needed if name in parameters and name not in constants]
    try:
        signature.bind(*[None] * count, **constants, **dict.fromkeys(left_out))
        if left_out:
            given = f"{name}{signature} has no default for '{left_out[0]}'"
            raise LoadError(line_of_code(function) or line, f"{given}, and the call in SQL leaves it out")
    except TypeError as error:
        given = f"{count} argument{'' if count == 1 else 's'}"
        if constants or not count:
            given = f"{given} and {', '.join(constants) or 'no constants'} ({error})"
        message = f"{name}{signature} can't be called with {given}, as SQL calls it"
        raise LoadError(line_of_code(function) or line, message) from None


def line_of_code(function):
    """The line of a function of the text; 0 if it is from elsewhere."""
    code = getattr(function, "__code__", None)
    is_own = code is not None and code.co_filename == sys.modules["slackwater_function"].__file__
    return code.co_firstlineno if is_own else 0


def line_of_definition(name, text):
    """The line of a def or class in a text; 0 if it is made in another way."""
    import ast

    lines = [node.lineno for node in ast.parse(text).body if getattr(node, "name", None) == name]
    return lines[-1] if lines else 0


def main(connection):
    # The engine says when to end: Ctrl-C and a service's stop reach all processes of a group.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    try:
        import ctypes

        # PR_SET_PDEATHSIG: also a call that hangs ends with the engine.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    except Exception:
        pass
    Worker(connection).run()
