/* KeySet: a set of keys of 16 bytes. Where this file was not compiled, a set of Python takes its place (runs.py).

Python needs about 100 bytes for a key in a set, and a lookup waits for memory up to three times. Here a key takes 21 to 43
bytes, and a lookup waits once. Keys are fingerprints, hashed with a secret of the job, so a part of the key serves as its hash.

The set keeps to the limited API, so one wheel serves all versions of Python.
*/
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define KEY_SIZE 16
#define FIRST_SIZE 16

typedef struct {
    uint64_t first;
    uint64_t last; /* serves as the hash: the keys of a shard have the same first byte */
} Key;             /* an empty entry has zeros */

typedef struct {
    PyObject_HEAD
    Key *entries;
    size_t mask; /* number of entries - 1; the number is a power of two */
    size_t used;
    int has_zero; /* whether the key of zeros is in the set */
} KeySet;

static inline int
is_zero(Key key)
{
    return (key.first | key.last) == 0;
}

/* Set `key` to the contents of a bytes object. Return -1 with an exception if it is no key. */
static int
key_of(PyObject *object, Key *key)
{
    if (!PyBytes_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "a key must be a bytes object");
        return -1;
    }
    if (PyBytes_Size(object) != KEY_SIZE) {
        PyErr_Format(PyExc_ValueError, "a key must have %d bytes", KEY_SIZE);
        return -1;
    }
    memcpy(key, PyBytes_AsString(object), KEY_SIZE);
    return 0;
}

/* Return the entry of a key, or the empty entry where it belongs. */
static inline Key *
find(const KeySet *set, Key key)
{
    for (size_t at = key.last & set->mask;; at = (at + 1) & set->mask) {
        Key *entry = &set->entries[at];
        if (is_zero(*entry) || (entry->first == key.first && entry->last == key.last)) {
            return entry;
        }
    }
}

static int
grow(KeySet *set)
{
    Key *old = set->entries;
    size_t size = set->mask + 1;
    Key *entries = PyMem_Calloc(2 * size, sizeof(Key));
    if (entries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    set->entries = entries;
    set->mask = 2 * size - 1;
    for (size_t at = 0; at < size; at++) {
        if (!is_zero(old[at])) {
            *find(set, old[at]) = old[at];
        }
    }
    PyMem_Free(old);
    return 0;
}

static PyObject *
KeySet_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "", names)) {
        return NULL;
    }
    KeySet *set = (KeySet *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (set != NULL) {
        set->mask = FIRST_SIZE - 1;
        set->entries = PyMem_Calloc(FIRST_SIZE, sizeof(Key));
        if (set->entries == NULL) {
            PyErr_NoMemory();
            Py_CLEAR(set);
        }
    }
    return (PyObject *)set;
}

static void
KeySet_dealloc(KeySet *set)
{
    PyTypeObject *type = Py_TYPE((PyObject *)set);
    PyMem_Free(set->entries);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(set);
    Py_DECREF(type);
}

static Py_ssize_t
KeySet_length(KeySet *set)
{
    return (Py_ssize_t)(set->used + (size_t)set->has_zero);
}

static int
KeySet_contains(KeySet *set, PyObject *object)
{
    Key key;
    if (key_of(object, &key) < 0) {
        return -1;
    }
    return is_zero(key) ? set->has_zero : !is_zero(*find(set, key));
}

static PyObject *
KeySet_add(KeySet *set, PyObject *object)
{
    Key key;
    if (key_of(object, &key) < 0) {
        return NULL;
    }
    if (is_zero(key)) {
        set->has_zero = 1;
        Py_RETURN_NONE;
    }
    if ((set->used + 1) * 4 > (set->mask + 1) * 3 && grow(set) < 0) {
        return NULL;
    }
    Key *entry = find(set, key);
    set->used += is_zero(*entry);
    *entry = key;
    Py_RETURN_NONE;
}

static PyObject *
KeySet_discard(KeySet *set, PyObject *object)
{
    Key key;
    if (key_of(object, &key) < 0) {
        return NULL;
    }
    if (is_zero(key)) {
        set->has_zero = 0;
        Py_RETURN_NONE;
    }
    Key *gap = find(set, key);
    if (is_zero(*gap)) {
        Py_RETURN_NONE;
    }
    set->used--;
    /* Close the gap: a later entry moves into it unless it would then stand before the place of its hash (Knuth, TAOCP 6.4, R). */
    size_t hole = (size_t)(gap - set->entries);
    for (size_t at = (hole + 1) & set->mask; !is_zero(set->entries[at]); at = (at + 1) & set->mask) {
        size_t home = set->entries[at].last & set->mask;
        if (((at - home) & set->mask) >= ((at - hole) & set->mask)) {
            set->entries[hole] = set->entries[at];
            hole = at;
        }
    }
    memset(&set->entries[hole], 0, sizeof(Key));
    Py_RETURN_NONE;
}

static int
append(PyObject *list, const Key *key)
{
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)key, KEY_SIZE);
    int failed = bytes == NULL || PyList_Append(list, bytes) < 0;
    Py_XDECREF(bytes);
    return failed ? -1 : 0;
}

/* Iterate over the keys that are in the set now; later changes have no effect. */
static PyObject *
KeySet_iterate(KeySet *set)
{
    const Key zero = {0, 0};
    PyObject *keys = PyList_New(0);
    if (keys == NULL || (set->has_zero && append(keys, &zero) < 0)) {
        Py_XDECREF(keys);
        return NULL;
    }
    for (size_t at = 0; at <= set->mask; at++) {
        if (!is_zero(set->entries[at]) && append(keys, &set->entries[at]) < 0) {
            Py_DECREF(keys);
            return NULL;
        }
    }
    PyObject *iterator = PyObject_GetIter(keys);
    Py_DECREF(keys);
    return iterator;
}

static PyMethodDef methods[] = {
    {"add", (PyCFunction)KeySet_add, METH_O, NULL},
    {"discard", (PyCFunction)KeySet_discard, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, KeySet_new},
    {Py_tp_dealloc, KeySet_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_iter, KeySet_iterate},
    {Py_sq_length, KeySet_length},
    {Py_sq_contains, KeySet_contains},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "skitter.frontier.embedded._key_set.KeySet",
    .basicsize = sizeof(KeySet),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

static int
execute(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    int failed = type == NULL || PyModule_AddObjectRef(module, "KeySet", type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "skitter.frontier.embedded._key_set",
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__key_set(void)
{
    return PyModuleDef_Init(&module);
}
