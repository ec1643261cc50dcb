/* The text of a link and the prefixes of its page, for the modules that join both. Include it after Python.h. */
#ifndef SKITTER_WEB_TEXT_H
#define SKITTER_WEB_TEXT_H

enum { SCHEME, ROOT, PARENT, PAGE, FOLDER, PREFIXES }; /* the order of HrefPrefixes */

typedef struct {
    const char *start;
    size_t length;
} Text;

/* Set `text` to the characters of a Python string in UTF-8. Return 0 for a lone surrogate, which has none, and -1 for an error. */
static int
utf8_of(PyObject *string, Text *text)
{
    Py_ssize_t length;
    text->start = PyUnicode_AsUTF8AndSize(string, &length);
    if (text->start == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    text->length = (size_t)length;
    return 1;
}

#endif
