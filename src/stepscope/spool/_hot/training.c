/* The calls of a training step of PyTorch, where they do what the calls of the steps before did.
 *
 * Each function here tests that first, and changes nothing until it is sure. Whatever else a call
 * needs, such as a model that is described or a clock of the device, Python does: the wrapper of the
 * same call there, in `slow`, which has all of the semantics. See capture/frameworks/pytorch.
 */

#include "hot.h"

_Thread_local char call_active, call_evaluates;

/* CallGuard: flags of the thread that `modules.ReentryGuard` describes. */

static PyObject *guard_get(PyObject *self, void *closure) {
    (void)self;
    PyObject *value = (closure == NULL ? call_active : call_evaluates) ? Py_True : Py_False;
    incref(value);
    return value;
}

static int guard_set(PyObject *self, PyObject *value, void *closure) {
    (void)self;
    *(closure == NULL ? &call_active : &call_evaluates) = value == Py_True;
    return 0;
}

static PyGetSetDef guard_getset[] = {
    {"active", guard_get, guard_set, NULL, NULL},
    {"evaluates", guard_get, guard_set, NULL, (void *)1},
    {0}};
static PyType_Slot guard_slots[] = {{Py_tp_getset, guard_getset}, {0, 0}};
static PyType_Spec guard_spec = {
    "stepscope.spool._hot.CallGuard", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT, guard_slots};

/* Training */

typedef struct {
    PyTypeObject *type;
    PyObject *name;
    char is_loss, is_special;
} Class;

typedef struct {
    PyObject *object, *reference;
} Model;

typedef struct {
    PyObject head;
    PyObject *name, *reference, *span, *device, *tensors;
    long long step_count, inner_count;
    char is_stepping;
} Optimizer;

enum { CLASSES = 8, MODELS = 8, OPTIMIZERS = 4 };

typedef struct {
    PyObject head;
    Steps *steps;
    Probe *forward_probe, *backward_probe, *optimizer_probe, *wait_probe;
    PyObject *forward_original, *forward_slow, *backward_original, *backward_slow;
    PyObject *next_original, *next_slow, *before_slow, *after_slow;
    PyObject *tensor_class, *loss_class, *parallel_name, *described;
    PyObject *is_grad_enabled, *tracing_state, *mode_count, *numel;
    PyObject *compiler_variables, *is_compiling;
    PyObject *traces_gradients; /* True where `is_compiling` does not tell all of it */
    Class classes[CLASSES];
    Model models[MODELS];
    Optimizer *optimizers[OPTIMIZERS];
    unsigned next_class, next_optimizer;
} Training;

static PyTypeObject *optimizer_type;
static PyObject *s_training, *s_flag, *s_accumulate, *s_name, *s_queue, *s_backward, *s_grad;

/* Return the result of a function without arguments as truth; -1 with an exception. */
static int ask(PyObject *function) {
    PyObject *result = PyObject_CallFunctionObjArgs(function, NULL);
    int truth = result == NULL ? -1 : result == Py_None ? 0 : PyObject_IsTrue(result);
    decref(result);
    return truth;
}

static int is_compiling(Training *self) {
    PyObject *flag = PyDict_GetItemWithError(self->compiler_variables, s_flag);
    return flag == Py_False ? 0 : flag == Py_True ? 1 : ask(self->is_compiling);
}

static PyObject *call_with(PyObject *function, PyObject *first, PyObject *args, PyObject *kwargs) {
    Py_ssize_t count = PyTuple_Size(args);
    PyObject *all = PyTuple_New(count + 1), *result = NULL;
    if (all == NULL)
        return NULL;
    incref(first);
    PyTuple_SetItem(all, 0, first);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyTuple_GetItem(args, i);
        incref(item);
        PyTuple_SetItem(all, i + 1, item);
    }
    result = PyObject_Call(function, all, kwargs);
    decref(all);
    return result;
}

static void finish_call(Span *span, unsigned flags) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    end_record(span, flags);
    PyErr_Restore(type, value, traceback);
}

static Class *classify(Training *self, PyObject *module) {
    for (Class *entry = self->classes; entry < self->classes + CLASSES; entry++)
        if (entry->type == module->type)
            return entry;
    PyObject *name = PyObject_GetAttrString((PyObject *)module->type, "__name__");
    int is_loss = PyObject_IsInstance(module, self->loss_class);
    if (name == NULL || is_loss < 0) {
        PyErr_Clear();
        decref(name);
        return NULL;
    }
    Class *entry = &self->classes[self->next_class++ % CLASSES];
    Class earlier = *entry;
    incref(module->type);
    int is_special = PyUnicode_CompareWithASCIIString(name, "OptimizedModule") == 0 ||
                     PyObject_RichCompareBool(name, self->parallel_name, 2 /* Py_EQ */) != 0;
    *entry = (Class){module->type, name, is_loss, is_special};
    decref(earlier.type);
    decref(earlier.name);
    return entry;
}

static int is_described(Training *self, PyObject *module) {
    Model *entry = &self->models[((uintptr_t)module >> 4) % MODELS];
    if (entry->object == module && PyWeakref_GetObject(entry->reference) == module)
        return 1;
    PyObject *key = PyLong_FromVoidPtr(module);
    PyObject *reference = key == NULL ? NULL : PyDict_GetItemWithError(self->described, key);
    decref(key);
    if (reference == NULL || PyWeakref_GetObject(reference) != module) {
        PyErr_Clear();
        return 0;
    }
    incref(reference);
    decref(entry->reference);
    *entry = (Model){module, reference};
    return 1;
}

/* Count the elements of the first tensor of a call, as `models.count_elements`; -1 where Python has
 * to do it. */
static long long count_elements(Training *self, PyObject *args, PyObject *kwargs) {
    PyObject *tensor = NULL, *key, *value;
    Py_ssize_t count = PyTuple_Size(args), position = 0;
    for (Py_ssize_t i = 0; i < count && tensor == NULL; i++)
        if ((PyObject *)PyTuple_GetItem(args, i)->type == self->tensor_class)
            tensor = PyTuple_GetItem(args, i);
    while (count == 0 && tensor == NULL && PyDict_Next(kwargs, &position, &key, &value))
        if ((PyObject *)value->type == self->tensor_class)
            tensor = value;
    if (tensor == NULL)
        return 0;
    incref(tensor);
    PyObject *number = NULL;
    if (ask(self->mode_count) == 0 && ask(self->tracing_state) == 0)
        number = PyObject_CallFunctionObjArgs(self->numel, tensor, NULL);
    decref(tensor);
    long long elements = number == NULL ? -1 : PyLong_AsLong(number);
    decref(number);
    PyErr_Clear();
    return elements;
}

/* forward(module, args, kwargs) of an outermost call */
static PyObject *training_forward(Training *self, PyObject *const *given, Py_ssize_t given_count) {
    PyObject *module = given[0], *args = given[1], *kwargs = given[2], *result;
    Steps *steps = self->steps;
    (void)given_count;
    int compiles = is_compiling(self);
    if (compiles)
        return compiles < 0 ? NULL : call_with(self->forward_original, module, args, kwargs);
    Class *class = steps->is_plain ? classify(self, module) : NULL;
    if (class == NULL || class->is_special)
        goto slow;
    if (class->is_loss) {
        call_active = 1;
        result = call_with(self->forward_original, module, args, kwargs);
        call_active = 0;
        return result;
    }
    if (!steps->has_optimizer || steps->watches_updates || !is_described(self, module))
        goto slow;
    PyObject *name = class->name; /* the entry may be replaced meanwhile */
    PyObject *attributes = PyObject_GenericGetDict(module, NULL);
    PyObject *training =
        attributes == NULL ? NULL : PyDict_GetItemWithError(attributes, s_training);
    decref(attributes);
    unsigned flags = training == Py_False ? SIZED | EVAL_MODE : SIZED;
    int computes = ask(self->is_grad_enabled);
    flags |= computes ? 0 : NO_GRAD;
    long long elements = count_elements(self, args, kwargs);
    PyErr_Clear();
    if (computes < 0 || elements < 0 || (flags != SIZED) != call_evaluates)
        goto slow;
    uint64_t value = ((uint64_t)(uintptr_t)module & 0x7FFFF0) << 40 | (uint64_t)elements;
    Span span;
    incref(name);
    int is_recorded = notify_work_start(steps);
    if (is_recorded == 0)
        is_recorded = start_record(self->forward_probe, FORWARD, name, value, &span);
    decref(name);
    if (is_recorded < 0)
        return NULL;
    if (!is_recorded)
        goto slow;
    call_active = 1;
    result = call_with(self->forward_original, module, args, kwargs);
    call_active = 0;
    finish_call(&span, flags);
    return result;
slow:
    return PyObject_CallFunctionObjArgs(self->forward_slow, module, args, kwargs, NULL);
}

/* backward(args, kwargs) */
static PyObject *training_backward(Training *self, PyObject *const *given, Py_ssize_t given_count) {
    PyObject *args = given[0], *kwargs = given[1];
    Steps *steps = self->steps;
    (void)given_count;
    int compiles = is_compiling(self);
    if (compiles)
        return compiles < 0 ? NULL : PyObject_Call(self->backward_original, args, kwargs);
    PyObject *accumulates = PyDict_GetItemWithError(kwargs, s_accumulate);
    if (accumulates != Py_True && self->traces_gradients == Py_True)
        goto slow;
    if (!steps->is_plain || !steps->has_optimizer || steps->watches_updates ||
        steps->reports_work || steps->only_predicts)
        goto slow;
    if (!call_active && !steps->has_work_between &&
        steps->pending_thread == PyThread_get_thread_ident() && end_step(steps) < 0)
        return NULL;
    Span span;
    PyObject *name = accumulates == Py_True ? s_backward : s_grad;
    if ((accumulates != Py_True && accumulates != Py_False && accumulates != NULL) ||
        !start_record(self->backward_probe, BACKWARD, name, 0, &span))
        goto slow;
    PyObject *result = PyObject_Call(self->backward_original, args, kwargs);
    finish_call(&span, 0);
    return result;
slow:
    return PyObject_CallFunctionObjArgs(self->backward_slow, args, kwargs, NULL);
}

/* next_batch(iterator) */
static PyObject *training_next(Training *self, PyObject *iterator) {
    Steps *steps = self->steps;
    PyObject *attributes = PyObject_GenericGetDict(iterator, NULL);
    PyObject *name = attributes == NULL ? NULL : PyDict_GetItemWithError(attributes, s_name);
    int has_queue = name != NULL && PyDict_GetItemWithError(attributes, s_queue) != NULL;
    unsigned long thread = PyThread_get_thread_ident();
    Span span;
    decref(attributes);
    PyErr_Clear();
    if (name == NULL || has_queue || !steps->is_idle || steps->idle_generation != generation ||
        steps->predicting_thread == thread)
        goto slow;
    incref(name);
    if (notify_work_start(steps) < 0) {
        decref(name);
        return NULL;
    }
    int64_t start = now();
    int is_recorded = start_record(self->wait_probe, DATA_WAIT, name, UINT64_MAX, &span);
    decref(name);
    if (!is_recorded)
        goto slow;
    PyObject *batch = PyObject_CallFunctionObjArgs(self->next_original, iterator, NULL);
    steps->batch_thread = batch == NULL ? 0 : thread;
    finish_call(&span, batch == NULL ? NO_RESULT : 0);
    if (batch != NULL)
        steps->data_wait_ns += now() - start;
    return batch;
slow:
    return PyObject_CallFunctionObjArgs(self->next_slow, iterator, NULL);
}

static Optimizer *find_optimizer(Training *self, PyObject *optimizer) {
    for (int i = 0; i < OPTIMIZERS; i++) {
        Optimizer *state = self->optimizers[i];
        if (state != NULL && PyWeakref_GetObject(state->reference) == optimizer)
            return state;
    }
    return NULL;
}

/* note_optimizer(state): find it from now on */
static PyObject *training_note_optimizer(Training *self, PyObject *state) {
    Optimizer **entry = &self->optimizers[self->next_optimizer++ % OPTIMIZERS], *earlier = *entry;
    if (!PyObject_IsInstance(state, (PyObject *)optimizer_type))
        return NULL;
    incref(state);
    *entry = (Optimizer *)state;
    decref(earlier);
    incref(Py_None);
    return Py_None;
}

/* before_step(optimizer, args, kwargs) */
static PyObject *training_before(Training *self, PyObject *const *given, Py_ssize_t given_count) {
    (void)given_count;
    Optimizer *state = self->steps->is_plain ? find_optimizer(self, given[0]) : NULL;
    Span span;
    if (state == NULL || state->is_stepping ||
        !start_record(self->optimizer_probe, OPTIMIZER, state->name, (uintptr_t)given[0], &span))
        return PyObject_CallFunctionObjArgs(
            self->before_slow, given[0], given[1], given[2], NULL);
    PyObject *earlier = state->span;
    state->is_stepping = 1;
    state->span = make_span(&span);
    decref(earlier);
    PyErr_Clear();
    incref(Py_None);
    return Py_None;
}

/* after_step(optimizer, args, kwargs) */
static PyObject *training_after(Training *self, PyObject *const *given, Py_ssize_t given_count) {
    (void)given_count;
    Steps *steps = self->steps;
    Optimizer *state = steps->is_plain ? find_optimizer(self, given[0]) : NULL;
    if (state == NULL || !state->is_stepping || state->inner_count || steps->only_predicts ||
        state->device != Py_None || state->tensors != Py_None || state->span == NULL ||
        state->span == Py_None || !end_span(state->span, 0, 0, 0))
        return PyObject_CallFunctionObjArgs(self->after_slow, given[0], given[1], given[2], NULL);
    state->is_stepping = 0;
    state->step_count++;
    steps->watches_updates = 0;
    if (!steps->has_marks)
        steps->pending_thread = PyThread_get_thread_ident();
    incref(Py_None);
    return Py_None;
}

#define MEMBER(owner, name) {#name, T_OBJECT, offsetof(owner, name), 0, NULL}

static PyMemberDef optimizer_members[] = {
    MEMBER(Optimizer, name), MEMBER(Optimizer, reference), MEMBER(Optimizer, span),
    MEMBER(Optimizer, device), MEMBER(Optimizer, tensors),
    {"step_count", T_LONGLONG, offsetof(Optimizer, step_count), 0, NULL},
    {"inner_count", T_LONGLONG, offsetof(Optimizer, inner_count), 0, NULL},
    {"is_stepping", T_BOOL, offsetof(Optimizer, is_stepping), 0, NULL},
    {0}};

static void optimizer_dealloc(Optimizer *self) {
    decref(self->name);
    decref(self->reference);
    decref(self->span);
    decref(self->device);
    decref(self->tensors);
    free_object(&self->head);
}

static PyType_Slot optimizer_slots[] = {
    {Py_tp_members, optimizer_members}, {Py_tp_dealloc, optimizer_dealloc}, {0, 0}};
static PyType_Spec optimizer_spec = {
    "stepscope.spool._hot.Optimizer", sizeof(Optimizer), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, optimizer_slots};

/* It lives as long as the process. */
static PyMemberDef training_members[] = {
    MEMBER(Training, steps), MEMBER(Training, forward_probe), MEMBER(Training, backward_probe),
    MEMBER(Training, optimizer_probe), MEMBER(Training, wait_probe),
    MEMBER(Training, forward_original), MEMBER(Training, forward_slow),
    MEMBER(Training, backward_original), MEMBER(Training, backward_slow),
    MEMBER(Training, next_original), MEMBER(Training, next_slow),
    MEMBER(Training, before_slow), MEMBER(Training, after_slow),
    MEMBER(Training, tensor_class), MEMBER(Training, loss_class),
    MEMBER(Training, parallel_name), MEMBER(Training, described),
    MEMBER(Training, is_grad_enabled), MEMBER(Training, tracing_state),
    MEMBER(Training, mode_count), MEMBER(Training, numel),
    MEMBER(Training, compiler_variables), MEMBER(Training, is_compiling),
    MEMBER(Training, traces_gradients),
    {0}};
static PyMethodDef training_methods[] = {
    {"forward", (void *)training_forward, METH_FASTCALL, NULL},
    {"backward", (void *)training_backward, METH_FASTCALL, NULL},
    {"next_batch", (void *)training_next, METH_O, NULL},
    {"before_step", (void *)training_before, METH_FASTCALL, NULL},
    {"after_step", (void *)training_after, METH_FASTCALL, NULL},
    {"note_optimizer", (void *)training_note_optimizer, METH_O, NULL},
    {0}};
static PyType_Slot training_slots[] = {
    {Py_tp_members, training_members}, {Py_tp_methods, training_methods}, {0, 0}};
static PyType_Spec training_spec = {
    "stepscope.spool._hot.Training", sizeof(Training), 0, Py_TPFLAGS_DEFAULT, training_slots};

int add_training(PyObject *module) {
    s_training = PyUnicode_InternFromString("training");
    s_flag = PyUnicode_InternFromString("_is_compiling_flag");
    s_accumulate = PyUnicode_InternFromString("accumulate_grad");
    s_name = PyUnicode_InternFromString("_stepscope_name");
    s_queue = PyUnicode_InternFromString("_data_queue");
    s_backward = PyUnicode_InternFromString("backward");
    s_grad = PyUnicode_InternFromString("grad");
    optimizer_type = (PyTypeObject *)add_type(module, "Optimizer", &optimizer_spec);
    return s_grad != NULL && optimizer_type != NULL &&
           add_type(module, "Training", &training_spec) != NULL &&
           add_type(module, "CallGuard", &guard_spec) != NULL;
}
