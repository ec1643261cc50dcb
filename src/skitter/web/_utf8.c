/* Decodes UTF-8 whose longest parts are in ASCII, as most pages are: Python takes five times as long for a page with a single
other character, such as the dash in its title, as for one in ASCII.

The bytes are divided into blocks. A run of blocks in ASCII is decoded alone, and so is a run of other blocks. That gives the
same text: no character crosses the border of two runs, because one of them is in ASCII.

The module keeps to the limited API, so one wheel serves all versions of Python.
*/
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#define BLOCK 1024 /* bytes: as many as save the time that another string takes */

static int
is_ascii(const char *bytes, Py_ssize_t length)
{
    char all = 0;
    for (Py_ssize_t index = 0; index < length; index++) { /* the compiler uses vector instructions */
        all |= bytes[index];
    }
    return (all & 0x80) == 0;
}

/* Return the end of the run that begins here. */
static const char *
end_of_run(const char *at, const char *end)
{
    int kind = -1;
    while (at < end) {
        Py_ssize_t length = end - at < BLOCK ? end - at : BLOCK;
        int is_plain = is_ascii(at, length);
        if (kind >= 0 && is_plain != kind) {
            break;
        }
        kind = is_plain;
        at += length;
    }
    return at;
}

static PyObject *
join(PyObject *parts)
{
    PyObject *empty = PyUnicode_FromStringAndSize(NULL, 0);
    PyObject *text = empty == NULL ? NULL : PyUnicode_Join(empty, parts);
    Py_XDECREF(empty);
    return text;
}

static PyObject *
decode(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *at, *errors;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "y#s", &at, &length, &errors)) {
        return NULL;
    }
    const char *end = at + length, *stop = end_of_run(at, end);
    if (stop == end) { /* one run */
        return PyUnicode_DecodeUTF8(at, length, errors);
    }
    PyObject *parts = PyList_New(0);
    while (parts != NULL && at < end) {
        PyObject *part = PyUnicode_DecodeUTF8(at, stop - at, errors);
        if (part == NULL || PyList_Append(parts, part) < 0) {
            Py_CLEAR(parts);
        }
        Py_XDECREF(part);
        at = stop;
        stop = end_of_run(at, end);
    }
    PyObject *text = parts == NULL ? NULL : join(parts);
    Py_XDECREF(parts);
    return text;
}

static PyMethodDef functions[] = {
    {"decode", decode, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "skitter.web._utf8",
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__utf8(void)
{
    return PyModuleDef_Init(&module);
}
