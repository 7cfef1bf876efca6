/* Records of the running thread: what is written at each step, without a frame of Python. */

#ifndef STEPSCOPE_HOT_H
#define STEPSCOPE_HOT_H

#include "stable_abi.h"

enum { HEADER_WORDS = 8, RECORD_WORDS = 4, DEPTH_MASK = 0x7FFF };
enum { NO_GRAD = 2, NO_RESULT = 4, EVAL_MODE = 8, SIZED = 32 };
enum { DATA_WAIT = 4, FORWARD = 6, BACKWARD = 7, OPTIMIZER = 8 };

/* Words of a segment, and the index of its next record; called, it returns the index. */
typedef struct {
    PyObject head;
    int64_t next, roll;
    uint64_t *words;
    Py_buffer view;
} Counter;

/* Base of SpanLog. `counter` is the first item of the cursor; NULL before the first segment. */
typedef struct {
    PyObject head;
    PyObject *cursor;
    Counter *counter;
} Log;

/* Base of ThreadLogs. */
typedef struct {
    PyObject head;
    PyObject *metas;
    Log *coarse, *fine;
    long long depth, generation;
} Logs;

typedef struct {
    long long generation;
    long kind;
    PyObject *name;
    uint64_t meta;
} Meta;

/* Base of Probe, with the meta words of its last names. */
typedef struct {
    PyObject head;
    PyObject *name;
    char alive, is_coarse;
    unsigned next_meta;
    Meta metas[2];
} Probe;

/* A word of a shared page on which nothing is to be done while it has this value. */
typedef struct {
    Py_buffer view;
    uint64_t *word, value;
} Condition;

enum { MAX_CONDITIONS = 4 };

/* Base of Progress. */
typedef struct {
    PyObject head;
    long long step_count, data_wait_ns;
    unsigned long long pending_thread, batch_thread, predicting_thread;
    char has_optimizer, watches_updates, reports_work, has_marks, has_work_between, only_predicts;
    char is_plain;
    /* Until then, and while these hold, a step boundary only writes the heartbeat. */
    char is_idle;
    long long idle_generation, due_step;
    int condition_count;
    Condition conditions[MAX_CONDITIONS];
    Py_buffer heartbeat;
} Steps;

/* A record that is open. */
typedef struct {
    Logs *logs;
    Counter *counter;
    uint64_t *record;
} Span;

/* Not of the same names in other libraries of the process. */
#pragma GCC visibility push(hidden)

extern long long generation, live;

static inline void incref(void *object) { Py_IncRef(object); }
static inline void decref(void *object) { Py_DecRef(object); }

int64_t now(void);
int start_record(Probe *, long kind, PyObject *name, uint64_t value, Span *);
void end_record(Span *, unsigned flags);
PyObject *make_span(Span *);
int end_span(PyObject *span, unsigned flags, int has_value, uint64_t value);
int end_step(Steps *);
int notify_work_start(Steps *);
extern _Thread_local char call_active, call_evaluates;
void free_object(PyObject *);
PyObject *add_type(PyObject *module, const char *name, PyType_Spec *);
int add_steps(PyObject *module);
int add_training(PyObject *module);

#pragma GCC visibility pop

#endif
