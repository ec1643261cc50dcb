/* The inner loops of sorted runs, see runs.py. Where this file was not compiled, its functions in Python take their place.

It keeps to the limited API, so one wheel serves all versions of Python.
*/
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define KEY_SIZE 16
#define TAG_START 5
#define TAG_SIZE 2
#define END_SIZE 4
/* Keys whose places in the filters are read together. */
#define BATCH 32

#if defined(__GNUC__) || defined(__clang__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)(address))
#endif

/* Return the part of a key: its four bytes after the first one, scaled to a number of parts. */
static inline uint64_t
part_of(const unsigned char *key, uint64_t parts)
{
    uint64_t prefix = (uint64_t)key[1] << 24 | (uint64_t)key[2] << 16 | (uint64_t)key[3] << 8 | key[4];
    return prefix * parts >> 32;
}

/* Some keys in order, as one sequence of bytes. */
typedef struct {
    const unsigned char *at;
    const unsigned char *end;
} Keys;

/* Set `keys` to the contents of a bytes object. Return -1 with an exception if it is none, or not made of whole keys. */
static int
keys_of(PyObject *object, Keys *keys)
{
    if (!PyBytes_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "keys must be a bytes object");
        return -1;
    }
    Py_ssize_t size = PyBytes_Size(object);
    if (size % KEY_SIZE) {
        PyErr_Format(PyExc_ValueError, "keys must have %d bytes each", KEY_SIZE);
        return -1;
    }
    keys->at = (const unsigned char *)PyBytes_AsString(object);
    keys->end = keys->at + size;
    return 0;
}

/* Write all keys of some sources in order, each once. Return the end of what was written. */
static unsigned char *
merge_sources(unsigned char *to, Keys *sources, Py_ssize_t count)
{
    for (;;) {
        const unsigned char *first = NULL;
        for (Py_ssize_t index = 0; index < count; index++) {
            const Keys *source = &sources[index];
            if (source->at < source->end && (first == NULL || memcmp(source->at, first, KEY_SIZE) < 0)) {
                first = source->at;
            }
        }
        if (first == NULL) {
            return to;
        }
        memcpy(to, first, KEY_SIZE);
        for (Py_ssize_t index = 0; index < count; index++) {
            Keys *source = &sources[index];
            if (source->at < source->end && memcmp(source->at, to, KEY_SIZE) == 0) {
                source->at += KEY_SIZE;
            }
        }
        to += KEY_SIZE;
    }
}

PyDoc_STRVAR(merge_doc, "merge(sources)\n--\n\nReturn the keys of several sequences, each key once.");

static PyObject *
merge(PyObject *module, PyObject *argument)
{
    PyObject *list = PySequence_List(argument); /* keeps the sequences */
    if (list == NULL) {
        return NULL;
    }
    PyObject *merged = NULL;
    Py_ssize_t count = PyList_Size(list);
    size_t size = 0;
    Keys *sources = PyMem_Calloc((size_t)count + 1, sizeof(Keys));
    unsigned char *written = NULL;
    if (sources == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        if (keys_of(PyList_GetItem(list, index), &sources[index]) < 0) {
            goto done;
        }
        size += (size_t)(sources[index].end - sources[index].at);
    }
    written = PyMem_Malloc(size + 1);
    if (written == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    unsigned char *end = merge_sources(written, sources, count);
    merged = PyBytes_FromStringAndSize((const char *)written, end - written);
done:
    PyMem_Free(written);
    PyMem_Free(sources);
    Py_DECREF(list);
    return merged;
}

PyDoc_STRVAR(
    split_doc,
    "split(packed, parts, first, end)\n--\n\nReturn the keys of each part from first until before end."
);

static PyObject *
split(PyObject *module, PyObject *arguments)
{
    PyObject *packed;
    unsigned int parts, first, end;
    Keys keys;
    if (!PyArg_ParseTuple(arguments, "OIII", &packed, &parts, &first, &end) || keys_of(packed, &keys) < 0) {
        return NULL;
    }
    if (first > end || end > parts) {
        PyErr_SetString(PyExc_ValueError, "there are no such parts");
        return NULL;
    }
    PyObject *found = PyList_New(end - first);
    if (found == NULL) {
        return NULL;
    }
    while (keys.at < keys.end && part_of(keys.at, parts) < first) {
        keys.at += KEY_SIZE;
    }
    for (unsigned int part = first; part < end; part++) {
        const unsigned char *start = keys.at;
        while (keys.at < keys.end && part_of(keys.at, parts) <= part) {
            keys.at += KEY_SIZE;
        }
        PyObject *bytes = PyBytes_FromStringAndSize((const char *)start, keys.at - start);
        if (bytes == NULL || PyList_SetItem(found, part - first, bytes) < 0) {
            Py_DECREF(found);
            return NULL;
        }
    }
    return found;
}

typedef struct {
    PyObject_HEAD
    PyObject *packed;
    const unsigned char *ends; /* the end of each part as uint32_t, then two bytes of each key */
    uint64_t parts;
} KeyFilter;

/* Return the number of keys before a part. */
static inline size_t
keys_before(const unsigned char *packed, uint64_t part)
{
    uint32_t end = 0;
    if (part > 0) {
        memcpy(&end, packed + (part - 1) * END_SIZE, END_SIZE);
    }
    return end;
}

static int
is_well_formed(const unsigned char *packed, size_t size, uint64_t parts)
{
    if (parts == 0 || size / END_SIZE < parts) {
        return 0;
    }
    for (uint64_t part = 0; part < parts; part++) {
        if (keys_before(packed, part + 1) < keys_before(packed, part)) {
            return 0;
        }
    }
    return size - parts * END_SIZE == keys_before(packed, parts) * TAG_SIZE;
}

static PyObject *
KeyFilter_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"parts", "packed", NULL};
    unsigned int parts;
    PyObject *packed;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "IO", names, &parts, &packed)) {
        return NULL;
    }
    if (!PyBytes_Check(packed)) {
        PyErr_SetString(PyExc_TypeError, "a packed filter must be a bytes object");
        return NULL;
    }
    if (!is_well_formed((const unsigned char *)PyBytes_AsString(packed), (size_t)PyBytes_Size(packed), parts)) {
        PyErr_SetString(PyExc_ValueError, "the filter of a run is malformed");
        return NULL;
    }
    KeyFilter *filter = (KeyFilter *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (filter != NULL) {
        Py_INCREF(packed);
        filter->packed = packed;
        filter->ends = (const unsigned char *)PyBytes_AsString(packed);
        filter->parts = parts;
    }
    return (PyObject *)filter;
}

static void
KeyFilter_dealloc(KeyFilter *filter)
{
    PyTypeObject *type = Py_TYPE((PyObject *)filter);
    Py_XDECREF(filter->packed);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(filter);
    Py_DECREF(type);
}

/* Set `from` and `end` to the tags of the part in which a key would be. */
static inline void
find_tags(const KeyFilter *filter, const unsigned char *key, const unsigned char **from, const unsigned char **end)
{
    uint64_t part = part_of(key, filter->parts);
    const unsigned char *tags = filter->ends + filter->parts * END_SIZE;
    *from = tags + keys_before(filter->ends, part) * TAG_SIZE;
    *end = tags + keys_before(filter->ends, part + 1) * TAG_SIZE;
}

static int
has_tag(const KeyFilter *filter, const unsigned char *key)
{
    const unsigned char *at, *end;
    find_tags(filter, key, &at, &end);
    uint16_t tag, other;
    memcpy(&tag, key + TAG_START, TAG_SIZE);
    for (; at < end; at += TAG_SIZE) {
        memcpy(&other, at, TAG_SIZE);
        if (other == tag) {
            return 1;
        }
    }
    return 0;
}

/* Return the bytes of one key; NULL with an exception if the object is not a key. */
static const unsigned char *
key_of(PyObject *object)
{
    Keys keys;
    if (keys_of(object, &keys) < 0) {
        return NULL;
    }
    if (keys.end - keys.at != KEY_SIZE) {
        PyErr_Format(PyExc_ValueError, "a key must have %d bytes", KEY_SIZE);
        return NULL;
    }
    return keys.at;
}

static int
KeyFilter_contains(KeyFilter *filter, PyObject *object)
{
    const unsigned char *key = key_of(object);
    return key == NULL ? -1 : has_tag(filter, key);
}

/* Return a filter of a list; NULL with an exception if the object there is not a filter. */
static const KeyFilter *
filter_at(PyObject *filters, Py_ssize_t index)
{
    PyObject *found = PyList_GetItem(filters, index);
    if (found != NULL && PyType_GetSlot(Py_TYPE(found), Py_sq_contains) != (void *)KeyFilter_contains) {
        PyErr_SetString(PyExc_TypeError, "a KeyFilter is required");
        return NULL;
    }
    return (const KeyFilter *)found;
}

/* Append those keys of a batch to `found` that a filter of their shard does not exclude. Return -1 with an exception. */
static int
append_possible(PyObject *found, PyObject *keys, Py_ssize_t start, Py_ssize_t end, PyObject *shards)
{
    /* Both places of memory for a key and filter are rarely in the caches. All of the batch are requested at once. */
    for (int step = 0; step < 3; step++) {
        for (Py_ssize_t index = start; index < end; index++) {
            PyObject *object = PyList_GetItem(keys, index);
            const unsigned char *key = object == NULL ? NULL : key_of(object);
            PyObject *filters = key == NULL ? NULL : PyList_GetItem(shards, key[0]);
            Py_ssize_t count = filters == NULL ? -1 : PyList_Size(filters);
            if (count < 0) {
                return -1;
            }
            for (Py_ssize_t number = 0; number < count; number++) {
                const KeyFilter *filter = filter_at(filters, number);
                if (filter == NULL) {
                    return -1;
                }
                const unsigned char *tags, *tags_end;
                if (step == 0) {
                    PREFETCH(filter->ends + part_of(key, filter->parts) * END_SIZE);
                } else if (step == 1) {
                    find_tags(filter, key, &tags, &tags_end);
                    PREFETCH(tags);
                    PREFETCH(tags_end);
                } else if (has_tag(filter, key)) {
                    if (PyList_Append(found, object) < 0) {
                        return -1;
                    }
                    break;
                }
            }
        }
    }
    return 0;
}

PyDoc_STRVAR(
    possible_keys_doc,
    "possible_keys(keys, shards)\n--\n\nReturn the keys that are in a filter of their shard, or seem to be."
);

static PyObject *
possible_keys(PyObject *module, PyObject *arguments)
{
    PyObject *keys, *shards;
    if (!PyArg_ParseTuple(arguments, "OO", &keys, &shards)) {
        return NULL;
    }
    PyObject *found = PyList_New(0);
    Py_ssize_t count = PyList_Size(keys);
    if (count < 0) {
        Py_CLEAR(found);
    }
    for (Py_ssize_t start = 0; found != NULL && start < count; start += BATCH) {
        Py_ssize_t end = count - start < BATCH ? count : start + BATCH;
        if (append_possible(found, keys, start, end, shards) < 0) {
            Py_CLEAR(found);
        }
    }
    return found;
}

static PyType_Slot slots[] = {
    {Py_tp_new, KeyFilter_new},
    {Py_tp_dealloc, KeyFilter_dealloc},
    {Py_sq_contains, KeyFilter_contains},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "skitter.frontier.embedded._sorted_keys.KeyFilter",
    .basicsize = sizeof(KeyFilter),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

static int
execute(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    int failed = type == NULL || PyModule_AddObjectRef(module, "KeyFilter", type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static PyMethodDef functions[] = {
    {"merge", merge, METH_O, merge_doc},
    {"possible_keys", possible_keys, METH_VARARGS, possible_keys_doc},
    {"split", split, METH_VARARGS, split_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "skitter.frontier.embedded._sorted_keys",
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__sorted_keys(void)
{
    return PyModuleDef_Init(&module);
}
