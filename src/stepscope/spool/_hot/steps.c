/* Step boundaries; see capture/frameworks/progress.py. */

#include "hot.h"

enum { STEPS_WORD = 1, BOUNDARY_WORD = 2, DATA_WAIT_WORD = 3 };

static PyObject *s_end_step, *s_notify_work, *s_start_training;

static int call_method(Steps *self, PyObject *name) {
    PyObject *result = PyObject_CallMethodObjArgs(&self->head, name, NULL);
    decref(result);
    return result == NULL ? -1 : 0;
}

/* Register the end of a step; -1 with an exception. */
int end_step(Steps *self) {
    long long step = self->step_count + 1;
    int is_idle = self->is_idle && self->idle_generation == generation && step < self->due_step;
    for (int i = 0; is_idle && i < self->condition_count; i++)
        is_idle = __atomic_load_n(self->conditions[i].word, __ATOMIC_RELAXED) ==
                  self->conditions[i].value;
    if (!is_idle)
        return call_method(self, s_end_step);
    self->pending_thread = 0;
    self->step_count = step;
    uint64_t *words = self->heartbeat.buf;
    if (words != NULL) {
        words[DATA_WAIT_WORD] = self->data_wait_ns;
        words[STEPS_WORD] = step;
        __atomic_store_n(&words[BOUNDARY_WORD], (uint64_t)now(), __ATOMIC_RELEASE);
    }
    return 0;
}

int notify_work_start(Steps *self) {
    if (self->pending_thread && self->pending_thread == PyThread_get_thread_ident()) {
        self->has_work_between = 1;
        return end_step(self);
    }
    return self->reports_work ? call_method(self, s_notify_work) : 0;
}

/* Return None, or the exception of a status. */
static PyObject *none_unless(int status) {
    if (status < 0)
        return NULL;
    incref(Py_None);
    return Py_None;
}

static PyObject *steps_end_step(Steps *self, PyObject *unused) {
    (void)unused;
    return none_unless(end_step(self));
}

static PyObject *steps_notify_work_start(Steps *self, PyObject *unused) {
    (void)unused;
    return none_unless(notify_work_start(self));
}

static PyObject *steps_notify_optimizer_step(Steps *self, PyObject *unused) {
    (void)unused;
    self->watches_updates = 0;
    if (self->only_predicts && call_method(self, s_start_training) < 0)
        return NULL;
    if (!self->has_marks)
        self->pending_thread = PyThread_get_thread_ident();
    return none_unless(0);
}

static PyObject *steps_notify_fetch_start(Steps *self, PyObject *unused) {
    (void)unused;
    unsigned long thread = PyThread_get_thread_ident();
    if (self->predicting_thread == thread) {
        self->predicting_thread = 0;
        if (self->only_predicts)
            self->pending_thread = thread;
    }
    return none_unless(notify_work_start(self));
}

/* notify_fetch_end(*, has_batch) */
static PyObject *steps_notify_fetch_end(Steps *self, PyObject *const *args, Py_ssize_t count,
                                        PyObject *names) {
    int has_batch = names == NULL ? 0 : PyObject_IsTrue(args[count]);
    if (has_batch >= 0)
        self->batch_thread = has_batch ? PyThread_get_thread_ident() : 0;
    return none_unless(has_batch);
}

static void disturb(Steps *self) {
    self->is_idle = 0;
    for (int i = 0; i < self->condition_count; i++)
        PyBuffer_Release(&self->conditions[i].view);
    self->condition_count = 0;
    PyBuffer_Release(&self->heartbeat);
    self->heartbeat.buf = NULL;
}

static PyObject *steps_disturb(Steps *self, PyObject *unused) {
    (void)unused;
    disturb(self);
    return none_unless(0);
}

/* rest(due_step, heartbeat or None, [(words, index, value), ...]) */
static PyObject *steps_rest(Steps *self, PyObject *args) {
    long long due_step;
    PyObject *heartbeat, *conditions;
    disturb(self);
    if (!PyArg_ParseTuple(args, "LOO", &due_step, &heartbeat, &conditions))
        return NULL;
    Py_ssize_t count = PyTuple_Size(conditions);
    if (count > MAX_CONDITIONS) /* Python looks at all of them */
        return none_unless(0);
    if (heartbeat != Py_None && PyObject_GetBuffer(heartbeat, &self->heartbeat, PyBUF_WRITABLE) < 0)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *words;
        long long index;
        unsigned long long value;
        Condition *condition = &self->conditions[i];
        if (!PyArg_ParseTuple(PyTuple_GetItem(conditions, i), "OLK", &words, &index, &value) ||
            PyObject_GetBuffer(words, &condition->view, PyBUF_WRITABLE) < 0)
            return NULL;
        condition->word = (uint64_t *)condition->view.buf + index;
        condition->value = value;
        self->condition_count = i + 1;
    }
    if (count < 0)
        return NULL;
    self->due_step = due_step;
    self->idle_generation = generation;
    self->is_idle = 1;
    return none_unless(0);
}

static void steps_dealloc(Steps *self) {
    disturb(self);
    free_object(&self->head);
}

static PyMemberDef members[] = {
    {"step_count", T_LONGLONG, offsetof(Steps, step_count), 0, NULL},
    {"data_wait_ns", T_LONGLONG, offsetof(Steps, data_wait_ns), 0, NULL},
    {"_pending_thread", T_ULONGLONG, offsetof(Steps, pending_thread), 0, NULL},
    {"_batch_thread", T_ULONGLONG, offsetof(Steps, batch_thread), 0, NULL},
    {"_predicting_thread", T_ULONGLONG, offsetof(Steps, predicting_thread), 0, NULL},
    {"has_optimizer", T_BOOL, offsetof(Steps, has_optimizer), 0, NULL},
    {"watches_updates", T_BOOL, offsetof(Steps, watches_updates), 0, NULL},
    {"reports_work", T_BOOL, offsetof(Steps, reports_work), 0, NULL},
    {"is_plain", T_BOOL, offsetof(Steps, is_plain), 0, NULL},
    {"_has_marks", T_BOOL, offsetof(Steps, has_marks), 0, NULL},
    {"_has_work_between", T_BOOL, offsetof(Steps, has_work_between), 0, NULL},
    {"_only_predicts", T_BOOL, offsetof(Steps, only_predicts), 0, NULL},
    {0}};
static PyMethodDef methods[] = {
    {"_end_step", (void *)steps_end_step, METH_NOARGS, NULL},
    {"notify_work_start", (void *)steps_notify_work_start, METH_NOARGS, NULL},
    {"notify_optimizer_step", (void *)steps_notify_optimizer_step, METH_NOARGS, NULL},
    {"notify_fetch_start", (void *)steps_notify_fetch_start, METH_NOARGS, NULL},
    {"notify_fetch_end", (void *)steps_notify_fetch_end, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"disturb", (void *)steps_disturb, METH_NOARGS, NULL},
    {"_rest", (void *)steps_rest, METH_VARARGS, NULL},
    {0}};
static PyType_Slot slots[] = {
    {Py_tp_members, members}, {Py_tp_methods, methods}, {Py_tp_dealloc, steps_dealloc}, {0, 0}};
static PyType_Spec spec = {
    "stepscope.spool._hot.Steps", sizeof(Steps), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

int add_steps(PyObject *module) {
    s_end_step = PyUnicode_InternFromString("end_step_in_python");
    s_notify_work = PyUnicode_InternFromString("notify_work");
    s_start_training = PyUnicode_InternFromString("_start_training");
    return s_end_step != NULL && s_notify_work != NULL && s_start_training != NULL &&
           add_type(module, "Steps", &spec) != NULL && add_training(module);
}
