/* LinkTable in C. Its twin in links.py says what it does, and is used where this file was not compiled.

A page has some fifty links, and nearly all of them are known. A set of their texts is too large for the caches of the
processor, so that each lookup waits for memory three times: for the entry of the set, for the object of the text, and
for its characters. This table has 16 bytes per text, and the entries of 64 links are requested from memory before the
first one is read.

A text is represented by 120 bits of SipHash-1-3 (Aumasson and Bernstein 2012, in its variant for 128 bits) with a random
key for each table. With a billion texts, the probability that any two have the same hash is below 10^-18, and without
the key no site can create such texts.

The table keeps to the limited API, so one wheel serves all versions of Python.
*/
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "../web/_text.h"

#if defined(__GNUC__) || defined(__clang__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)0)
#endif

#define GROUP 64       /* links whose entries are requested together */
#define MAX_REASONS 255
#define FIRST_SIZE 1024

typedef struct {
    uint64_t low;
    uint64_t high; /* 56 bits of the hash; the lowest byte is the number of the reason, 0 for an empty entry */
} Entry;

typedef struct {
    PyObject_HEAD
    Entry *entries;
    size_t mask; /* number of entries - 1; the number is a power of two */
    size_t used;
    uint64_t key[2];
    PyObject *reasons; /* list; the reason with number n is at n - 1 */
} LinkTable;

/* SipHash */

#define ROTATE(x, bits) (((x) << (bits)) | ((x) >> (64 - (bits))))

static inline void
sip_round(uint64_t v[4])
{
    v[0] += v[1]; v[1] = ROTATE(v[1], 13); v[1] ^= v[0]; v[0] = ROTATE(v[0], 32);
    v[2] += v[3]; v[3] = ROTATE(v[3], 16); v[3] ^= v[2];
    v[0] += v[3]; v[3] = ROTATE(v[3], 21); v[3] ^= v[0];
    v[2] += v[1]; v[1] = ROTATE(v[1], 17); v[1] ^= v[2]; v[2] = ROTATE(v[2], 32);
}

/* Return the hash of a text, as an entry without a reason. `bytes`: followed by at least 7 bytes that may be read. */
static Entry
hash_of(const uint64_t key[2], const unsigned char *bytes, size_t length)
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575ULL, key[1] ^ 0x646f72616e646f6dULL ^ 0xee,
                     key[0] ^ 0x6c7967656e657261ULL, key[1] ^ 0x7465646279746573ULL};
    uint64_t word;
    size_t whole = length & ~(size_t)7;
    for (size_t at = 0; at < whole; at += 8) {
        memcpy(&word, bytes + at, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    memcpy(&word, bytes + whole, 8);
    word &= ((uint64_t)1 << (8 * (length & 7))) - 1;
    word |= (uint64_t)length << 56;
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xee;
    sip_round(v); sip_round(v); sip_round(v);
    Entry entry;
    entry.low = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    sip_round(v); sip_round(v); sip_round(v);
    entry.high = (v[0] ^ v[1] ^ v[2] ^ v[3]) & ~(uint64_t)0xff;
    return entry;
}

/* The hash table: open addressing, linear probing, at most three quarters full */

static inline Entry *
find(const LinkTable *table, Entry hash)
{
    for (size_t at = hash.low & table->mask;; at = (at + 1) & table->mask) {
        Entry *entry = &table->entries[at];
        if ((entry->high & 0xff) == 0 || (entry->low == hash.low && (entry->high & ~(uint64_t)0xff) == hash.high)) {
            return entry;
        }
    }
}

static int
grow(LinkTable *table)
{
    Entry *old = table->entries;
    size_t size = table->mask + 1;
    Entry *entries = PyMem_Calloc(2 * size, sizeof(Entry));
    if (entries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    table->entries = entries;
    table->mask = 2 * size - 1;
    for (size_t at = 0; at < size; at++) {
        if (old[at].high & 0xff) {
            Entry hash = {old[at].low, old[at].high & ~(uint64_t)0xff};
            *find(table, hash) = old[at];
        }
    }
    PyMem_Free(old);
    return 0;
}

/* Set `number` to that of a reason, which it gets at its first use. */
static int
number_of(LinkTable *table, PyObject *reason, uint64_t *number)
{
    Py_ssize_t index = PySequence_Contains(table->reasons, reason) ? PySequence_Index(table->reasons, reason) : -1;
    if (PyErr_Occurred()) {
        return -1;
    }
    if (index < 0) {
        index = PyList_Size(table->reasons);
        if (index >= MAX_REASONS) {
            PyErr_Format(PyExc_ValueError, "more than %d reasons", MAX_REASONS);
            return -1;
        }
        if (PyList_Append(table->reasons, reason) < 0) {
            return -1;
        }
    }
    *number = (uint64_t)index + 1;
    return 0;
}

/* Set `hash` to that of two texts, one behind the other. */
static int
hash_both(const LinkTable *table, Text prefix, Text rest, Entry *hash)
{
    unsigned char small[2048];
    size_t length = prefix.length + rest.length;
    unsigned char *bytes = length + 8 <= sizeof(small) ? small : PyMem_Malloc(length + 8);
    if (bytes == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(bytes, prefix.start, prefix.length);
    memcpy(bytes + prefix.length, rest.start, rest.length);
    memset(bytes + length, 0, 8);
    *hash = hash_of(table->key, bytes, length);
    if (bytes != small) {
        PyMem_Free(bytes);
    }
    return 0;
}

/* Return whether a link begins with a scheme and a colon (RFC 3986, 3.1). */
static int
has_scheme(Text link)
{
    for (size_t at = 0; at < link.length; at++) {
        unsigned char c = (unsigned char)link.start[at];
        int is_letter = (unsigned char)((c | 0x20) - 'a') < 26;
        if (c == ':') {
            return at > 0;
        }
        if (!is_letter && (at == 0 || !((c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.'))) {
            return 0;
        }
    }
    return 0;
}

/* Return the prefix that `absolute_text` puts before a link, and remove from the link what the prefix replaces. */
static Text
prefix_of(Text *link, const Text prefixes[PREFIXES])
{
    const char *start = link->start;
    Text prefix = {start, 0};
    size_t replaced = 0;
    if (link->length > 1 && start[0] == '/' && start[1] == '/') {
        prefix = prefixes[SCHEME];
    }
    else if (start[0] == '/') {
        prefix = prefixes[ROOT];
        replaced = 1;
    }
    else if (link->length > 2 && memcmp(start, "../", 3) == 0) {
        prefix = prefixes[PARENT];
        replaced = 3;
    }
    else if (start[0] == '?') {
        prefix = prefixes[PAGE];
    }
    else if (!has_scheme(*link)) {
        prefix = prefixes[FOLDER];
    }
    link->start += replaced;
    link->length -= replaced;
    return prefix;
}

/* Methods */

static PyObject *
LinkTable_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"own_page", NULL};
    PyObject *own_page;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "U", names, &own_page)) {
        return NULL;
    }
    PyObject *os = PyImport_ImportModule("os");
    PyObject *random = os == NULL ? NULL : PyObject_CallMethod(os, "urandom", "i", 16);
    Py_XDECREF(os);
    if (random == NULL) {
        return NULL;
    }
    LinkTable *table = (LinkTable *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (table != NULL) {
        memcpy(table->key, PyBytes_AsString(random), 16);
        table->mask = FIRST_SIZE - 1;
        table->entries = PyMem_Calloc(FIRST_SIZE, sizeof(Entry));
        table->reasons = PyList_New(0);
        if (table->entries == NULL || table->reasons == NULL || PyList_Append(table->reasons, own_page) < 0) {
            if (!PyErr_Occurred()) {
                PyErr_NoMemory();
            }
            Py_CLEAR(table);
        }
    }
    Py_DECREF(random);
    return (PyObject *)table;
}

static void
LinkTable_dealloc(LinkTable *table)
{
    PyTypeObject *type = Py_TYPE((PyObject *)table);
    PyMem_Free(table->entries);
    Py_XDECREF(table->reasons);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(table);
    Py_DECREF(type);
}

static Py_ssize_t
LinkTable_length(LinkTable *table)
{
    return (Py_ssize_t)table->used;
}

/* Compute the hashes of up to GROUP strings, and request their entries from memory. Return their number without those that have no
UTF-8, or -1 for an error. */
static Py_ssize_t
hash_strings(const LinkTable *table, PyObject *strings, Py_ssize_t first, Entry hashes[GROUP])
{
    const Text nothing = {"", 0};
    Py_ssize_t length = PyTuple_Size(strings), hashed = 0;
    for (Py_ssize_t index = first; index < length && index < first + GROUP; index++) {
        Text text;
        int valid = utf8_of(PyTuple_GetItem(strings, index), &text);
        if (valid < 0 || (valid > 0 && hash_both(table, nothing, text, &hashes[hashed]) < 0)) {
            return -1;
        }
        if (valid > 0) {
            PREFETCH(&table->entries[hashes[hashed].low & table->mask]);
            hashed++;
        }
    }
    return hashed;
}

static PyObject *
LinkTable_add(LinkTable *table, PyObject *const *args, Py_ssize_t amount)
{
    uint64_t number;
    if (amount != 2) {
        PyErr_SetString(PyExc_TypeError, "add(texts, reason) takes two arguments");
        return NULL;
    }
    PyObject *texts = PySequence_Tuple(args[0]);
    if (texts == NULL || number_of(table, args[1], &number) < 0) {
        goto error;
    }
    Entry hashes[GROUP];
    for (Py_ssize_t first = 0; first < PyTuple_Size(texts); first += GROUP) {
        if ((table->used + GROUP) * 4 > (table->mask + 1) * 3 && grow(table) < 0) {
            goto error;
        }
        Py_ssize_t hashed = hash_strings(table, texts, first, hashes);
        if (hashed < 0) {
            goto error;
        }
        for (Py_ssize_t index = 0; index < hashed; index++) {
            Entry *entry = find(table, hashes[index]);
            table->used += (entry->high & 0xff) == 0;
            entry->low = hashes[index].low;
            entry->high = hashes[index].high | number;
        }
    }
    Py_DECREF(texts);
    Py_RETURN_NONE;
error:
    Py_XDECREF(texts);
    return NULL;
}

static PyObject *
LinkTable_has_any(LinkTable *table, PyObject *strings)
{
    PyObject *texts = PySequence_Tuple(strings);
    if (texts == NULL) {
        return NULL;
    }
    Entry hashes[GROUP];
    int found = 0;
    for (Py_ssize_t first = 0; first < PyTuple_Size(texts) && !found; first += GROUP) {
        Py_ssize_t hashed = hash_strings(table, texts, first, hashes);
        if (hashed < 0) {
            Py_DECREF(texts);
            return NULL;
        }
        for (Py_ssize_t index = 0; index < hashed && !found; index++) {
            found = (find(table, hashes[index])->high & 0xff) != 0;
        }
    }
    Py_DECREF(texts);
    return PyBool_FromLong(found);
}

static PyObject *
LinkTable_get(LinkTable *table, PyObject *string)
{
    Text text, nothing = {"", 0};
    Entry hash;
    int valid = utf8_of(string, &text);
    if (valid == 0) {
        Py_RETURN_NONE;
    }
    if (valid < 0 || hash_both(table, nothing, text, &hash) < 0) {
        return NULL;
    }
    uint64_t number = find(table, hash)->high & 0xff;
    if (number == 0) {
        Py_RETURN_NONE;
    }
    return Py_NewRef(PyList_GetItem(table->reasons, (Py_ssize_t)number - 1));
}

static PyObject *
LinkTable_clear(LinkTable *table, PyObject *Py_UNUSED(nothing))
{
    memset(table->entries, 0, (table->mask + 1) * sizeof(Entry));
    table->used = 0;
    Py_RETURN_NONE;
}

/* Add what was counted for each reason to the dict of the caller. */
static int
report(const LinkTable *table, const Py_ssize_t skipped[MAX_REASONS + 1], PyObject *counts)
{
    Py_ssize_t reasons = PyList_Size(table->reasons);
    for (Py_ssize_t number = 1; number <= reasons; number++) {
        if (skipped[number] == 0) {
            continue;
        }
        PyObject *reason = PyList_GetItem(table->reasons, number - 1);
        PyObject *before = PyObject_GetItem(counts, reason);
        PyObject *more = before == NULL ? NULL : PyLong_FromSsize_t(skipped[number]);
        PyObject *after = more == NULL ? NULL : PyNumber_Add(before, more);
        int failed = after == NULL || PyObject_SetItem(counts, reason, after) < 0;
        Py_XDECREF(before);
        Py_XDECREF(more);
        Py_XDECREF(after);
        if (failed) {
            return -1;
        }
    }
    return 0;
}

static PyObject *
LinkTable_unknown(LinkTable *table, PyObject *const *args, Py_ssize_t amount)
{
    if (amount != 3) {
        PyErr_SetString(PyExc_TypeError, "unknown(hrefs, prefixes, counts) takes three arguments");
        return NULL;
    }
    Text prefixes[PREFIXES] = {{"", 0}, {"", 0}, {"", 0}, {"", 0}, {"", 0}};
    int are_absolute = args[1] == Py_None;
    if (!are_absolute && (!PyTuple_Check(args[1]) || PyTuple_Size(args[1]) != PREFIXES)) {
        PyErr_Format(PyExc_TypeError, "prefixes must be a tuple of %d strings, or None", PREFIXES);
        return NULL;
    }
    for (Py_ssize_t index = 0; !are_absolute && index < PREFIXES; index++) {
        Py_ssize_t length;
        prefixes[index].start = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(args[1], index), &length);
        if (prefixes[index].start == NULL) {
            return NULL;
        }
        prefixes[index].length = (size_t)length;
    }
    PyObject *hrefs = PySequence_Tuple(args[0]);
    PyObject *unknown = hrefs == NULL ? NULL : PyList_New(0);
    if (unknown == NULL) {
        Py_XDECREF(hrefs);
        return NULL;
    }
    Py_ssize_t skipped[MAX_REASONS + 1] = {0};
    Entry hashes[GROUP];
    enum { OTHER, OWN_PAGE, HASHED } kinds[GROUP];
    Py_ssize_t length = PyTuple_Size(hrefs);
    for (Py_ssize_t first = 0; first < length; first += GROUP) {
        Py_ssize_t group = length - first < GROUP ? length - first : GROUP;
        for (Py_ssize_t index = 0; index < group; index++) {
            Text link;
            int valid = utf8_of(PyTuple_GetItem(hrefs, first + index), &link);
            if (valid < 0) {
                goto error;
            }
            kinds[index] = OTHER;
            if (valid == 0 || link.length == 0 || (unsigned char)link.start[0] <= ' ') {
                continue;
            }
            const char *fragment = memchr(link.start, '#', link.length);
            if (fragment == link.start) {
                kinds[index] = are_absolute ? OTHER : OWN_PAGE;
                continue;
            }
            if (fragment != NULL) {
                link.length = (size_t)(fragment - link.start);
            }
            Text prefix = prefix_of(&link, prefixes);
            if (hash_both(table, prefix, link, &hashes[index]) < 0) {
                goto error;
            }
            PREFETCH(&table->entries[hashes[index].low & table->mask]);
            kinds[index] = HASHED;
        }
        for (Py_ssize_t index = 0; index < group; index++) {
            uint64_t number = 0;
            if (kinds[index] == OWN_PAGE) {
                number = 1;
            }
            else if (kinds[index] == HASHED) {
                number = find(table, hashes[index])->high & 0xff;
            }
            if (number != 0) {
                skipped[number]++;
            }
            else if (PyList_Append(unknown, PyTuple_GetItem(hrefs, first + index)) < 0) {
                goto error;
            }
        }
    }
    if (report(table, skipped, args[2]) < 0) {
        goto error;
    }
    Py_DECREF(hrefs);
    return unknown;
error:
    Py_DECREF(hrefs);
    Py_DECREF(unknown);
    return NULL;
}

static PyMethodDef methods[] = {
    {"add", (PyCFunction)(void (*)(void))LinkTable_add, METH_FASTCALL, NULL},
    {"get", (PyCFunction)LinkTable_get, METH_O, NULL},
    {"has_any", (PyCFunction)LinkTable_has_any, METH_O, NULL},
    {"unknown", (PyCFunction)(void (*)(void))LinkTable_unknown, METH_FASTCALL, NULL},
    {"clear", (PyCFunction)LinkTable_clear, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, LinkTable_new},
    {Py_tp_dealloc, LinkTable_dealloc},
    {Py_tp_methods, methods},
    {Py_mp_length, LinkTable_length},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "skitter.worker._link_table.LinkTable",
    .basicsize = sizeof(LinkTable),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

static int
execute(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    int failed = type == NULL || PyModule_AddObjectRef(module, "LinkTable", type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "skitter.worker._link_table",
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__link_table(void)
{
    return PyModuleDef_Init(&module);
}
