/* Plain links joined with the URL of their page. The twin in urls.py says which links are plain, and is used where this file
was not compiled.

Most links need no parser: their URL is a part of the URL of the page, followed by their own text. A regular expression that
finds them took a third of the time of Response.follow. This file uses a table of characters.

The module keeps to the limited API, so one wheel serves all versions of Python.
*/
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <string.h>

#include "_text.h"

enum { SEGMENT = 1, PATH = 2, QUERY = 4 }; /* may start a segment of a path; may follow in it; may be in a query */

static unsigned char kinds[256];

/* The prefixes of a page (HrefPrefixes) with the characters of those that were asked for. */
typedef struct {
    PyObject *tuple;
    Text texts[PREFIXES];
} Prefixes;

static int
prefixes_of(PyObject *tuple, Prefixes *prefixes)
{
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != PREFIXES) {
        PyErr_Format(PyExc_TypeError, "prefixes must be a tuple of %d strings", PREFIXES);
        return -1;
    }
    memset(prefixes, 0, sizeof(*prefixes));
    prefixes->tuple = tuple;
    return 0;
}

/* Return one of the prefixes, or NULL for an error. */
static const Text *
prefix_at(Prefixes *prefixes, int index)
{
    Text *text = &prefixes->texts[index];
    if (text->start == NULL) {
        int valid = utf8_of(PyTuple_GetItem(prefixes->tuple, index), text);
        if (valid <= 0) {
            if (valid == 0) {
                PyErr_SetString(PyExc_ValueError, "a prefix contains a lone surrogate");
            }
            return NULL;
        }
    }
    return text;
}

/* Return whether a text is a plain path and query, with or without a fragment. Cut the fragment off. */
static int
is_plain(Text *text)
{
    const unsigned char *at = (const unsigned char *)text->start, *end = at + text->length;
    while (at < end && kinds[*at] & SEGMENT) {
        while (++at < end && kinds[*at] & PATH) {
        }
        if (at == end || *at != '/') {
            break;
        }
        at++;
    }
    if (at < end && *at == '?') {
        while (++at < end && kinds[*at] & QUERY) {
        }
    }
    if (at < end && *at != '#') {
        return 0;
    }
    text->length = (size_t)((const char *)at - text->start);
    return 1;
}

static void
skip(Text *text, size_t amount)
{
    text->start += amount;
    text->length -= amount;
}

static PyObject *
joined(Text prefix, Text rest)
{
    char small[1024];
    size_t length = prefix.length + rest.length;
    char *text = length <= sizeof(small) ? small : PyMem_Malloc(length);
    if (text == NULL) {
        return PyErr_NoMemory();
    }
    memcpy(text, prefix.start, prefix.length);
    memcpy(text + prefix.length, rest.start, rest.length);
    PyObject *url = PyUnicode_FromStringAndSize(text, (Py_ssize_t)length);
    if (text != small) {
        PyMem_Free(text);
    }
    return url;
}

/* Return the URL of a plain link as a new reference, and None for any other link. */
static PyObject *
url_of(PyObject *href, Prefixes *prefixes)
{
    Text link;
    int valid = utf8_of(href, &link);
    if (valid < 0) {
        return NULL;
    }
    if (valid == 0) { /* a lone surrogate matters only in front of the fragment */
        Py_ssize_t mark = PyUnicode_FindChar(href, '#', 0, PyUnicode_GetLength(href), 1);
        PyObject *head = mark < 0 ? NULL : PyUnicode_Substring(href, 0, mark);
        if (head == NULL) {
            if (mark == -2 || PyErr_Occurred()) {
                return NULL;
            }
            Py_RETURN_NONE;
        }
        valid = utf8_of(head, &link);
        PyObject *url = valid > 0 ? url_of(head, prefixes) : valid < 0 ? NULL : Py_NewRef(Py_None);
        Py_DECREF(head);
        return url;
    }
    const Text *root = prefix_at(prefixes, ROOT);
    if (root == NULL) {
        return NULL;
    }
    size_t length = link.length;
    if (length > root->length - 1 && memcmp(link.start, root->start, root->length) == 0) {
        skip(&link, root->length);
        if (!is_plain(&link)) {
            Py_RETURN_NONE;
        }
        if (root->length + link.length == length && PyUnicode_CheckExact(href)) {
            return Py_NewRef(href); /* not a copy: the links of a sitemap may take 50 MB */
        }
        return joined(*root, link);
    }
    int kind = FOLDER;
    if (length >= 3 && memcmp(link.start, "../", 3) == 0) {
        kind = PARENT;
        skip(&link, 3);
    }
    else if (length >= 1 && link.start[0] == '/') {
        kind = ROOT;
        skip(&link, 1);
    }
    else if (length == 0 || !(kinds[(unsigned char)link.start[0]] & SEGMENT)) {
        Py_RETURN_NONE;
    }
    if (!is_plain(&link)) {
        Py_RETURN_NONE;
    }
    const Text *prefix = prefix_at(prefixes, kind);
    return prefix == NULL ? NULL : joined(*prefix, link);
}

static PyObject *
join_plain(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t amount)
{
    if (amount != 2) {
        PyErr_SetString(PyExc_TypeError, "join_plain(href, prefixes) takes two arguments");
        return NULL;
    }
    if (args[1] == Py_None) { /* the URL of the page is unusual */
        Py_RETURN_NONE;
    }
    Prefixes prefixes;
    return prefixes_of(args[1], &prefixes) < 0 ? NULL : url_of(args[0], &prefixes);
}

static PyObject *
join_all_plain(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t amount)
{
    if (amount != 2) {
        PyErr_SetString(PyExc_TypeError, "join_all_plain(hrefs, prefixes) takes two arguments");
        return NULL;
    }
    Prefixes prefixes;
    PyObject *hrefs = prefixes_of(args[1], &prefixes) < 0 ? NULL : PySequence_Tuple(args[0]);
    if (hrefs == NULL) {
        return NULL;
    }
    Py_ssize_t length = PyTuple_Size(hrefs);
    PyObject *urls = PyList_New(length);
    for (Py_ssize_t index = 0; urls != NULL && index < length; index++) {
        PyObject *url = url_of(PyTuple_GetItem(hrefs, index), &prefixes);
        if (url == NULL || PyList_SetItem(urls, index, url) < 0) {
            Py_CLEAR(urls);
        }
    }
    Py_DECREF(hrefs);
    return urls;
}

static int
execute(PyObject *Py_UNUSED(module))
{
    for (int byte = '!'; byte <= '~'; byte++) {
        if ((byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9')
            || strchr("_~!$&()*+,;=@-", byte) != NULL) {
            kinds[byte] = SEGMENT | PATH | QUERY;
        }
    }
    kinds['.'] = PATH | QUERY;
    kinds['/'] = kinds['?'] = kinds[':'] = kinds['%'] = QUERY;
    return 0;
}

static PyMethodDef functions[] = {
    {"join_plain", (PyCFunction)(void (*)(void))join_plain, METH_FASTCALL, NULL},
    {"join_all_plain", (PyCFunction)(void (*)(void))join_all_plain, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "skitter.web._url_join",
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__url_join(void)
{
    return PyModuleDef_Init(&module);
}
