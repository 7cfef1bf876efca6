/* The part of Python's stable ABI that is used here.
 *
 * It is the same in all releases from 3.9 on, without the free-threaded builds. Declared here, one
 * build serves all of them, on machines that have a compiler and no header of Python, too.
 * Reference: https://docs.python.org/3/c-api/stable.html
 */

#ifndef STEPSCOPE_STABLE_ABI_H
#define STEPSCOPE_STABLE_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef ssize_t Py_ssize_t;
typedef struct PyTypeObject PyTypeObject;
typedef struct PyThreadState PyThreadState;
typedef struct PyObject {
    Py_ssize_t refcount;
    PyTypeObject *type;
} PyObject;

typedef PyObject *(*PyFastFunction)(PyObject *, PyObject *const *, Py_ssize_t);
typedef PyObject *(*PyKeywordFunction)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

typedef struct {
    const char *name;
    void *function;
    int flags;
    const char *doc;
} PyMethodDef;
enum {
    METH_VARARGS = 1, METH_KEYWORDS = 2, METH_NOARGS = 4, METH_O = 8, METH_CLASS = 16, METH_FASTCALL = 128
};

typedef struct {
    const char *name;
    int type;
    Py_ssize_t offset;
    int flags;
    const char *doc;
} PyMemberDef;
enum { T_OBJECT = 6, T_BOOL = 14, T_OBJECT_EX = 16, T_LONGLONG = 17, T_ULONGLONG = 18 };

typedef struct {
    const char *name;
    PyObject *(*get)(PyObject *, void *);
    int (*set)(PyObject *, PyObject *, void *);
    const char *doc;
    void *closure;
} PyGetSetDef;

typedef struct {
    int slot;
    void *value;
} PyType_Slot;
typedef struct {
    const char *name;
    int basicsize;
    int itemsize;
    unsigned int flags;
    PyType_Slot *slots;
} PyType_Spec;
enum {
    Py_tp_call = 50, Py_tp_dealloc = 52, Py_tp_init = 60, Py_tp_methods = 64, Py_tp_members = 72,
    Py_tp_getset = 73, Py_tp_free = 74
};
#define Py_TPFLAGS_DEFAULT (1u << 18)
#define Py_TPFLAGS_BASETYPE (1u << 10)

typedef struct {
    PyObject head;
    PyObject *(*init)(void);
    Py_ssize_t index;
    PyObject *copy;
    const char *name;
    const char *doc;
    Py_ssize_t size;
    PyMethodDef *methods;
    void *slots, *traverse, *clear, *free;
} PyModuleDef;
#define PYTHON_ABI_VERSION 3

typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer;
enum { PyBUF_WRITABLE = 1 };

extern PyObject _Py_NoneStruct, _Py_TrueStruct, _Py_FalseStruct;
#define Py_None (&_Py_NoneStruct)
#define Py_True (&_Py_TrueStruct)
#define Py_False (&_Py_FalseStruct)
extern PyObject *PyExc_TypeError;
extern PyTypeObject PyUnicode_Type;

void Py_IncRef(PyObject *);
void Py_DecRef(PyObject *);
void PyErr_Clear(void);
void PyErr_Fetch(PyObject **, PyObject **, PyObject **);
void PyErr_Restore(PyObject *, PyObject *, PyObject *);
PyObject *PyErr_Occurred(void);
PyThreadState *PyThreadState_Get(void);
uint64_t PyThreadState_GetID(PyThreadState *);
unsigned long PyThread_get_thread_ident(void);
int PyArg_ParseTuple(PyObject *, const char *, ...);
int PyObject_GetBuffer(PyObject *, Py_buffer *, int);
void PyBuffer_Release(Py_buffer *);
PyObject *PyObject_Call(PyObject *, PyObject *, PyObject *);
PyObject *PyObject_CallFunctionObjArgs(PyObject *, ...);
PyObject *PyObject_CallMethodObjArgs(PyObject *, PyObject *, ...);
PyObject *PyObject_GetAttrString(PyObject *, const char *);
PyObject *PyObject_GenericGetDict(PyObject *, void *);
int PyObject_IsInstance(PyObject *, PyObject *);
int PyObject_IsTrue(PyObject *);
PyObject *PyObject_Str(PyObject *);
int PyObject_RichCompareBool(PyObject *, PyObject *, int);
PyObject *PyDict_GetItemWithError(PyObject *, PyObject *);
PyObject *PyDict_New(void);
int PyDict_SetItem(PyObject *, PyObject *, PyObject *);
int PyDict_Next(PyObject *, Py_ssize_t *, PyObject **, PyObject **);
PyObject *PyTuple_New(Py_ssize_t);
PyObject *PyTuple_Pack(Py_ssize_t, ...);
PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t);
int PyTuple_SetItem(PyObject *, Py_ssize_t, PyObject *);
Py_ssize_t PyTuple_Size(PyObject *);
PyObject *PyLong_FromLongLong(long long);
PyObject *PyLong_FromUnsignedLongLong(unsigned long long);
PyObject *PyLong_FromVoidPtr(void *);
long PyLong_AsLong(PyObject *);
unsigned long long PyLong_AsUnsignedLongLongMask(PyObject *);
PyObject *PyUnicode_FromString(const char *);
PyObject *PyUnicode_InternFromString(const char *);
int PyUnicode_CompareWithASCIIString(PyObject *, const char *);
PyObject *PyWeakref_GetObject(PyObject *);
PyObject *PyType_FromSpec(PyType_Spec *);
PyObject *PyType_GenericAlloc(PyTypeObject *, Py_ssize_t);
void *PyType_GetSlot(PyTypeObject *, int);
PyObject *PyModule_Create2(PyModuleDef *, int);
int PyModule_AddObject(PyObject *, const char *, PyObject *);

#endif
