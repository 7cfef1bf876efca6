/* Segments, logs of threads and probes; see spool/log.py, capture/session.py, capture/guard.py.
 *
 * What happens once per segment, name or thread is left to Python: a function here that would have
 * to do it calls the one of the same name there. Nothing of Python runs between the choice of a
 * record's place and its last store, so that a signal handler or a collection of garbage finds the
 * record complete. All of it runs with the global interpreter lock.
 */

#include <string.h>
#include <time.h>

#include "hot.h"

long long generation = 1, live = 1;
static PyObject *clock_function;
static PyTypeObject *counter_type;

int64_t now(void) {
    if (clock_function != NULL) { /* of a test */
        PyObject *number = PyObject_CallFunctionObjArgs(clock_function, NULL);
        int64_t time = (int64_t)PyLong_AsUnsignedLongLongMask(number);
        decref(number);
        return time;
    }
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

void free_object(PyObject *self) {
    PyTypeObject *type = self->type;
    ((void (*)(void *))PyType_GetSlot(type, Py_tp_free))(self);
    decref(type);
}

/* Counter */

static int counter_init(Counter *self, PyObject *args, PyObject *kwargs) {
    PyObject *words;
    long long roll;
    (void)kwargs;
    if (self->view.obj != NULL || !PyArg_ParseTuple(args, "OL", &words, &roll) ||
        PyObject_GetBuffer(words, &self->view, PyBUF_WRITABLE) < 0)
        return -1;
    self->words = self->view.buf;
    self->next = HEADER_WORDS;
    self->roll = roll;
    return 0;
}

static PyObject *counter_call(Counter *self, PyObject *args, PyObject *kwargs) {
    (void)args, (void)kwargs;
    int64_t index = self->next;
    self->next += RECORD_WORDS;
    return PyLong_FromLongLong(index);
}

static void counter_dealloc(Counter *self) {
    PyBuffer_Release(&self->view);
    free_object(&self->head);
}

static PyType_Slot counter_slots[] = {
    {Py_tp_init, counter_init}, {Py_tp_call, counter_call}, {Py_tp_dealloc, counter_dealloc}, {0, 0}};
static PyType_Spec counter_spec = {
    "stepscope.spool._hot.Counter", sizeof(Counter), 0, Py_TPFLAGS_DEFAULT, counter_slots};

/* Log */

static PyObject *log_get_cursor(Log *self, void *closure) {
    (void)closure;
    incref(self->cursor);
    return self->cursor;
}

static int log_set_cursor(Log *self, PyObject *cursor, void *closure) {
    (void)closure;
    PyObject *counter = cursor == NULL ? NULL : PyTuple_GetItem(cursor, 0);
    if (counter == NULL)
        return -1;
    PyObject *earlier = self->cursor;
    incref(cursor);
    self->cursor = cursor;
    self->counter = counter->type == counter_type ? (Counter *)counter : NULL;
    decref(earlier);
    return 0;
}

static void log_dealloc(Log *self) {
    decref(self->cursor);
    free_object(&self->head);
}

static PyGetSetDef log_getset[] = {
    {"cursor", (void *)log_get_cursor, (void *)log_set_cursor, NULL, NULL}, {0}};
static PyType_Slot log_slots[] = {
    {Py_tp_getset, log_getset}, {Py_tp_dealloc, log_dealloc}, {0, 0}};
static PyType_Spec log_spec = {
    "stepscope.spool._hot.Log", sizeof(Log), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, log_slots};

/* Logs: those of the threads that recorded last can be looked up by thread state. Its number is
 * given once, and the logs of one that ends are freed, which removes them here. */

enum { THREAD_SLOTS = 16 };
static struct {
    uint64_t thread;
    Logs *logs;
} threads[THREAD_SLOTS];

static Logs *find_logs(void) {
    uint64_t thread = PyThreadState_GetID(PyThreadState_Get());
    unsigned slot = thread % THREAD_SLOTS;
    Logs *logs = threads[slot].thread == thread ? threads[slot].logs : NULL;
    return logs != NULL && logs->generation == live ? logs : NULL;
}

static PyObject *hot_note_logs(PyObject *module, PyObject *logs) {
    (void)module;
    uint64_t thread = PyThreadState_GetID(PyThreadState_Get());
    threads[thread % THREAD_SLOTS].thread = thread;
    threads[thread % THREAD_SLOTS].logs = (Logs *)logs;
    incref(Py_None);
    return Py_None;
}

static void logs_dealloc(Logs *self) {
    for (int slot = 0; slot < THREAD_SLOTS; slot++)
        if (threads[slot].logs == self)
            threads[slot].logs = NULL;
    decref(self->metas);
    decref(self->coarse);
    decref(self->fine);
    free_object(&self->head);
}

static PyMemberDef logs_members[] = {
    {"metas", T_OBJECT_EX, offsetof(Logs, metas), 0, NULL},
    {"coarse", T_OBJECT_EX, offsetof(Logs, coarse), 0, NULL},
    {"fine", T_OBJECT_EX, offsetof(Logs, fine), 0, NULL},
    {"depth", T_LONGLONG, offsetof(Logs, depth), 0, NULL},
    {"generation", T_LONGLONG, offsetof(Logs, generation), 0, NULL},
    {0}};
static PyType_Slot logs_slots[] = {
    {Py_tp_members, logs_members}, {Py_tp_dealloc, logs_dealloc}, {0, 0}};
static PyType_Spec logs_spec = {
    "stepscope.spool._hot.Logs", sizeof(Logs), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    logs_slots};

/* Records */

static int look_up_meta(PyObject *metas, long kind, PyObject *name, uint64_t *meta) {
    PyObject *number = PyLong_FromLongLong(kind);
    PyObject *key = number == NULL ? NULL : PyTuple_Pack(3, number, name, Py_None);
    PyObject *value = key == NULL ? NULL : PyDict_GetItemWithError(metas, key);
    if (value != NULL)
        *meta = PyLong_AsUnsignedLongLongMask(value);
    decref(number);
    decref(key);
    if (value == NULL)
        PyErr_Clear();
    return value != NULL;
}

static int find_meta(Probe *probe, Logs *logs, long kind, PyObject *name, uint64_t *meta) {
    for (Meta *entry = probe->metas; entry < probe->metas + 2; entry++)
        if (entry->name == name && entry->kind == kind && entry->generation == logs->generation) {
            *meta = entry->meta;
            return 1;
        }
    if (!look_up_meta(logs->metas, kind, name, meta))
        return 0;
    Meta *entry = &probe->metas[probe->next_meta++ % 2];
    PyObject *earlier = entry->name;
    incref(name);
    *entry = (Meta){logs->generation, kind, name, *meta};
    decref(earlier);
    return 1;
}

/* Take the next record of a log; NULL where Python has to do it. */
static inline uint64_t *take_record(Counter *counter) {
    if (counter == NULL || counter->next >= counter->roll)
        return NULL;
    uint64_t *record = counter->words + counter->next;
    counter->next += RECORD_WORDS;
    return record;
}

/* Start a record; 0 where Python has to do it. */
int start_record(Probe *probe, long kind, PyObject *name, uint64_t value, Span *span) {
    Logs *logs = find_logs();
    uint64_t meta;
    if (logs == NULL || !probe->alive || !find_meta(probe, logs, kind, name, &meta))
        return 0;
    Counter *counter = (probe->is_coarse ? logs->coarse : logs->fine)->counter;
    uint64_t *record = take_record(counter);
    if (record == NULL)
        return 0;
    record[2] = meta | (logs->depth & DEPTH_MASK);
    record[3] = value;
    __atomic_store_n(&record[0], (uint64_t)now(), __ATOMIC_RELEASE);
    logs->depth++;
    incref(logs);
    incref(counter);
    *span = (Span){logs, counter, record};
    return 1;
}

/* Write a record whose times are known; 0 where Python has to do it. */
static int write_record(Probe *probe, long kind, PyObject *name, uint64_t start, uint64_t end,
                        uint64_t value, uint64_t flags) {
    Logs *logs = find_logs();
    uint64_t meta;
    if (logs == NULL || !find_meta(probe, logs, kind, name, &meta))
        return 0;
    uint64_t *record = take_record((probe->is_coarse ? logs->coarse : logs->fine)->counter);
    if (record == NULL)
        return 0;
    record[1] = end;
    record[2] = meta | flags << 16 | (logs->depth & DEPTH_MASK);
    record[3] = value;
    __atomic_store_n(&record[0], start, __ATOMIC_RELEASE);
    return 1;
}

static void finish(Logs *logs, uint64_t *record, unsigned flags, int has_value, uint64_t value) {
    if (logs->generation != generation)
        return;
    if (flags)
        record[2] |= (uint64_t)flags << 16;
    if (has_value)
        record[3] = value;
    __atomic_store_n(&record[1], (uint64_t)now(), __ATOMIC_RELEASE);
    logs->depth--;
}

void end_record(Span *span, unsigned flags) {
    finish(span->logs, span->record, flags, 0, 0);
    decref(span->counter);
    decref(span->logs);
}

/* Return the span as Python has it, and drop it here. */
PyObject *make_span(Span *span) {
    Log *coarse = span->logs->coarse, *log = coarse;
    if (coarse->counter != span->counter)
        log = span->logs->fine;
    PyObject *result = NULL;
    if (log->counter == span->counter) {
        PyObject *index = PyLong_FromLongLong(span->record - span->counter->words);
        result = PyTuple_Pack(3, PyTuple_GetItem(log->cursor, 1), index, span->logs);
        decref(index);
    }
    decref(span->counter);
    decref(span->logs);
    return result;
}

/* End a span that Python has; 0 where it is none of those that are written here. */
int end_span(PyObject *span, unsigned flags, int has_value, uint64_t value) {
    PyObject *words = PyTuple_GetItem(span, 0);
    PyObject *index = PyTuple_GetItem(span, 1);
    Logs *logs = (Logs *)PyTuple_GetItem(span, 2);
    if (words == NULL || index == NULL || logs == NULL) {
        PyErr_Clear();
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        Log *log = i ? logs->fine : logs->coarse;
        if (log->counter != NULL && PyTuple_GetItem(log->cursor, 1) == words) {
            uint64_t *record = log->counter->words + PyLong_AsLong(index);
            finish(logs, record, flags, has_value, value);
            return 1;
        }
    }
    return 0; /* the segment is full meanwhile */
}

/* Probe */

static void probe_dealloc(Probe *self) {
    decref(self->name);
    decref(self->metas[0].name);
    decref(self->metas[1].name);
    free_object(&self->head);
}

static PyObject *empty_name;

/* Call a method of Python's with the arguments of a vectorcall. */
static PyObject *pass_on(PyObject *self, const char *method, PyObject *const *args,
                         Py_ssize_t count, PyObject *names) {
    PyObject *function = PyObject_GetAttrString(self, method);
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    PyObject *positional = PyTuple_New(count), *keywords = NULL, *result = NULL;
    if (function == NULL || positional == NULL)
        goto end;
    for (Py_ssize_t i = 0; i < count; i++) {
        incref(args[i]);
        PyTuple_SetItem(positional, i, args[i]);
    }
    if (named) {
        keywords = PyDict_New();
        for (Py_ssize_t i = 0; keywords != NULL && i < named; i++)
            PyDict_SetItem(keywords, PyTuple_GetItem(names, i), args[count + i]);
    }
    result = PyObject_Call(function, positional, keywords);
end:
    decref(function);
    decref(positional);
    decref(keywords);
    return result;
}

static PyObject *probe_start(Probe *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    if (!live || !self->alive) {
        incref(Py_None);
        return Py_None;
    }
    if (names == NULL && count >= 1 && count <= 3) {
        long kind = PyLong_AsLong(args[0]);
        uint64_t value = count == 3 ? PyLong_AsUnsignedLongLongMask(args[2]) : 0;
        Span span;
        if (PyErr_Occurred() != NULL)
            PyErr_Clear();
        else if (start_record(self, kind, count > 1 ? args[1] : empty_name, value, &span))
            return make_span(&span);
    }
    return pass_on(&self->head, "start_in_python", args, count, names);
}

static PyObject *probe_end(Probe *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    if (count == 1 && args[0] == Py_None) {
        incref(Py_None);
        return Py_None;
    }
    unsigned flags = 0;
    uint64_t value = 0;
    int has_value = 0, is_plain = count == 1;
    for (Py_ssize_t i = 0, named = names == NULL ? 0 : PyTuple_Size(names); i < named; i++) {
        PyObject *name = PyTuple_GetItem(names, i), *argument = args[count + i];
        if (PyUnicode_CompareWithASCIIString(name, "flags") == 0)
            flags = (unsigned)PyLong_AsUnsignedLongLongMask(argument);
        else if (PyUnicode_CompareWithASCIIString(name, "value") != 0)
            is_plain = 0;
        else if (argument != Py_None)
            has_value = 1, value = PyLong_AsUnsignedLongLongMask(argument);
    }
    if (PyErr_Occurred() != NULL)
        PyErr_Clear();
    else if (is_plain && end_span(args[0], flags, has_value, value)) {
        incref(Py_None);
        return Py_None;
    }
    return pass_on(&self->head, "end_in_python", args, count, names);
}

/* write(kind, name, start_ns, end_ns, value=0, flags=0) */
static PyObject *probe_write(Probe *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    int is_written = !live || !self->alive;
    if (!is_written && names == NULL && count >= 4 && count <= 6) {
        uint64_t words[5] = {0}; /* kind, and what follows the name */
        for (Py_ssize_t i = 0; i < count; i++)
            if (i != 1)
                words[i ? i - 1 : 0] = PyLong_AsUnsignedLongLongMask(args[i]);
        if (PyErr_Occurred() != NULL)
            PyErr_Clear();
        else
            is_written = write_record(
                self, (long)words[0], args[1], words[1], words[2], words[3], words[4]);
    }
    if (!is_written)
        return pass_on(&self->head, "write_in_python", args, count, names);
    incref(Py_None);
    return Py_None;
}

static PyMemberDef probe_members[] = {
    {"name", T_OBJECT_EX, offsetof(Probe, name), 0, NULL},
    {"alive", T_BOOL, offsetof(Probe, alive), 0, NULL},
    {"_is_coarse", T_BOOL, offsetof(Probe, is_coarse), 0, NULL},
    {0}};
static PyMethodDef probe_methods[] = {
    {"start", (void *)probe_start, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"end", (void *)probe_end, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"write", (void *)probe_write, METH_FASTCALL | METH_KEYWORDS, NULL},
    {0}};
static PyType_Slot probe_slots[] = {
    {Py_tp_members, probe_members}, {Py_tp_methods, probe_methods}, {Py_tp_dealloc, probe_dealloc},
    {0, 0}};
static PyType_Spec probe_spec = {
    "stepscope.spool._hot.Probe", sizeof(Probe), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    probe_slots};

/* Annotation: an interval that `with` starts and ends. Open once it is written here; everything
 * else is left to Python. */

typedef struct {
    PyObject head;
    PyObject *key, *logs, *words;
    long long index, nests;
    char is_reopened;
} Annotation;

static PyObject *s_start, *s_end;

/* Annotation.make(key): Annotation(key), without the steps of a call of a type */
static PyObject *annotation_make(PyTypeObject *type, PyObject *key) {
    Annotation *self = (Annotation *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    incref(key);
    incref(Py_None);
    self->key = key;
    self->logs = Py_None;
    return &self->head;
}

/* Annotation.named(name): make(name), of another object than a str its text */
static PyObject *annotation_named(PyTypeObject *type, PyObject *name) {
    if (name->type == &PyUnicode_Type)
        return annotation_make(type, name);
    PyObject *text = PyObject_Str(name);
    PyObject *annotation = text == NULL ? NULL : annotation_make(type, text);
    decref(text);
    return annotation;
}

/* annotation.__enter__(): begin its interval, as annotation._start(1) */
static PyObject *annotation_enter(Annotation *self, PyObject *none) {
    (void)none;
    if (live == 0) { /* nothing is recorded */
        incref(self);
        return &self->head;
    }
    Logs *logs = find_logs();
    Counter *counter = logs == NULL ? NULL : logs->fine->counter;
    PyObject *meta = NULL;
    if (counter != NULL && counter->next < counter->roll && self->key != NULL &&
        self->logs == Py_None)
        meta = PyDict_GetItemWithError(logs->metas, self->key);
    if (meta == NULL) {
        PyErr_Clear();
        PyObject *one = PyLong_FromLongLong(1);
        PyObject *result = PyObject_CallMethodObjArgs(&self->head, s_start, one, NULL);
        decref(one);
        return result;
    }
    PyObject *earlier = self->words;
    self->index = counter->next;
    self->words = PyTuple_GetItem(logs->fine->cursor, 1);
    self->logs = &logs->head;
    self->nests = 1;
    self->is_reopened = 0;
    incref(self->words);
    incref(logs);
    counter->next += RECORD_WORDS;
    uint64_t *record = counter->words + self->index;
    record[2] = PyLong_AsUnsignedLongLongMask(meta) | (logs->depth & DEPTH_MASK);
    __atomic_store_n(&record[0], (uint64_t)now(), __ATOMIC_RELEASE);
    logs->depth++;
    decref(earlier);
    decref(Py_None);
    incref(self);
    return &self->head;
}

/* annotation.__exit__(kind, error, traceback): end its interval, as annotation._end() */
static PyObject *annotation_exit(Annotation *self, PyObject *const *args, Py_ssize_t count) {
    (void)args, (void)count;
    if (self->logs != NULL && self->logs != Py_None) {
        Logs *logs = (Logs *)self->logs;
        Counter *counter = logs->fine->counter;
        if (self->is_reopened || counter == NULL ||
            PyTuple_GetItem(logs->fine->cursor, 1) != self->words)
            return PyObject_CallMethodObjArgs(&self->head, s_end, NULL);
        incref(Py_None);
        self->logs = Py_None;
        if (logs->generation == generation) {
            uint64_t time = (uint64_t)now();
            __atomic_store_n(&counter->words[self->index + 1], time, __ATOMIC_RELEASE);
            logs->depth -= self->nests;
        }
        decref(logs);
    }
    incref(Py_None);
    return Py_None;
}

static void annotation_dealloc(Annotation *self) {
    decref(self->key);
    decref(self->logs);
    decref(self->words);
    free_object(&self->head);
}

static PyMemberDef annotation_members[] = {
    {"_key", T_OBJECT_EX, offsetof(Annotation, key), 0, NULL},
    {"_logs", T_OBJECT_EX, offsetof(Annotation, logs), 0, NULL},
    {"_words", T_OBJECT_EX, offsetof(Annotation, words), 0, NULL},
    {"_index", T_LONGLONG, offsetof(Annotation, index), 0, NULL},
    {"_nests", T_LONGLONG, offsetof(Annotation, nests), 0, NULL},
    {"_reopened", T_BOOL, offsetof(Annotation, is_reopened), 0, NULL},
    {0}};
static PyMethodDef annotation_methods[] = {
    {"make", (void *)annotation_make, METH_O | METH_CLASS, NULL},
    {"named", (void *)annotation_named, METH_O | METH_CLASS, NULL},
    {"__enter__", (void *)annotation_enter, METH_NOARGS, NULL},
    {"__exit__", (void *)annotation_exit, METH_FASTCALL, NULL},
    {0}};
static PyType_Slot annotation_slots[] = {
    {Py_tp_members, annotation_members}, {Py_tp_methods, annotation_methods},
    {Py_tp_dealloc, annotation_dealloc}, {0, 0}};
static PyType_Spec annotation_spec = {
    "stepscope.spool._hot.Annotation", sizeof(Annotation), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, annotation_slots};

/* Module */

static PyObject *hot_set_generation(PyObject *module, PyObject *args) {
    (void)module;
    if (!PyArg_ParseTuple(args, "LL", &generation, &live))
        return NULL;
    incref(Py_None);
    return Py_None;
}

static PyObject *hot_use_clock(PyObject *module, PyObject *function) {
    (void)module;
    PyObject *earlier = clock_function;
    clock_function = function == Py_None ? NULL : function;
    incref(clock_function);
    decref(earlier);
    incref(Py_None);
    return Py_None;
}

static PyMethodDef methods[] = {
    {"note_logs", (void *)hot_note_logs, METH_O, NULL},
    {"set_generation", (void *)hot_set_generation, METH_VARARGS, NULL},
    {"use_clock", (void *)hot_use_clock, METH_O, NULL},
    {0}};
static PyModuleDef definition = {
    {1, NULL}, NULL, 0, NULL, "stepscope.spool._hot._hot", NULL, -1, methods, 0, 0, 0, 0};

PyObject *add_type(PyObject *module, const char *name, PyType_Spec *spec) {
    PyObject *type = PyType_FromSpec(spec);
    if (type != NULL) {
        incref(type); /* this file refers to it, too */
        PyModule_AddObject(module, name, type);
    }
    return type;
}

__attribute__((visibility("default"))) PyObject *PyInit__hot(void);

PyObject *PyInit__hot(void) {
    PyObject *module = PyModule_Create2(&definition, PYTHON_ABI_VERSION);
    if (module == NULL)
        return NULL;
    s_start = PyUnicode_InternFromString("_start");
    s_end = PyUnicode_InternFromString("_end");
    empty_name = PyUnicode_InternFromString("");
    counter_type = (PyTypeObject *)add_type(module, "Counter", &counter_spec);
    PyModule_AddObject(module, "source_digest", PyUnicode_FromString(SOURCE_DIGEST));
    if (s_start == NULL || s_end == NULL || empty_name == NULL || counter_type == NULL ||
        !add_type(module, "Log", &log_spec) || !add_type(module, "Logs", &logs_spec) ||
        !add_type(module, "Probe", &probe_spec) ||
        !add_type(module, "Annotation", &annotation_spec) || !add_steps(module)) {
        decref(module);
        return NULL;
    }
    return module;
}
