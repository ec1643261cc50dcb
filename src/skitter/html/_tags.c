/* Tags of a page that is not parsed: whether there is one with a name, how many there are, and an upper bound of the memory of
the tree.
docs/design/limits.md names the rules of the bound.

The length of a page does not bound its tree, because formatting elements are opened again wherever they were not closed
(WHATWG HTML, 13.2.4.3), and because a part of a tag may be hidden in a quote. A page without either is simple: each tag adds
a known number of nodes. This scan proves for most pages with many links that they are simple, in a tenth of the time that the
parser takes. A page whose tree was not proven to be small is parsed in parts, and its memory is measured.

Why each "<" is examined, also in scripts and comments: whatever state the parser is in, a tag begins at a "<" with a letter
behind it. All tags that are examined end before the next "<", and no quote in them hides a ">". So no tag is overlooked, and
text that is no tag for the parser can only make the bound larger.

The module keeps to the limited API, so one wheel serves all versions of Python.
*/
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* Bytes. Measured: 101 for an element, 81 for a text node, 26 to 40 for an attribute, 5 for a character of either. */
#define ELEMENT 128
#define TEXT 96
#define ATTRIBUTE 48
#define CHARACTER 5

#define MAX_ATTRIBUTES 32      /* of one tag; the parser compares each one with all others */
#define MAX_ROOT_ATTRIBUTES 64 /* of all tags of <html> and <body>, which become those of one element */
#define MAX_STEPS 8000000      /* open elements, summed up over all tags: the parser may look at each of them, for 1 ns */
#define MAX_DEPTH 512          /* the parser nests elements no deeper */
#define MAX_NESTED 64          /* open elements whose end tags are awaited */
#define MAX_OPEN 8             /* formatting elements whose end tags are awaited */
#define MAX_INSIDE 7           /* tags after which the end tag of a formatting element may not close it in one step */
#define IMPLIED 3              /* elements that a tag adds at most, such as <tbody> and <tr> in front of <td> */
#define MOVED 4                /* elements that the end tag of a formatting element adds at most for each block inside of it,
                                  when it moves the two ("adoption agency algorithm") */

/* Names of elements */

/* EMPTY: never open, not even inside of <svg>. PLAIN: opens no other element, and hides no end tag from an element around it.
From FORMATTING on, each name has its own number. */
enum { OTHER, ROOT, EMPTY, PLAIN, FORMATTING };

static const char *const EMPTY_NAMES[] = {"br", "embed", "hr", "img", "meta"};
static const char *const PLAIN_NAMES[] = {
    "abbr", "address", "article", "aside", "cite", "dd", "del", "div", "dl", "dt", "figure", "footer", "h1", "h2", "h3", "h4",
    "h5", "h6", "header", "ins", "kbd", "label", "li", "main", "mark", "nav", "ol", "p", "picture", "pre", "q", "samp",
    "section", "source", "span", "sub", "sup", "time", "ul", "var", "wbr",
};
static const char *const FORMATTING_NAMES[] = {
    "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
};
#define NAME_SLOTS 256

static struct {
    uint64_t name; /* up to eight characters in lower case; 0 for an empty slot */
    int kind;
} names[NAME_SLOTS];
static uint64_t name_p, name_br, name_a;

/* The factor was chosen so that each name of the lists has its own slot. */
static inline size_t
slot_of(uint64_t name)
{
    size_t slot = (size_t)((name * 0xa196074a11390b57ULL) >> 56);
    while (names[slot].name != 0 && names[slot].name != name) {
        slot = (slot + 1) % NAME_SLOTS;
    }
    return slot;
}

static uint64_t
add_name(const char *text, int kind)
{
    uint64_t name = 0;
    for (; *text; text++) {
        name = name << 8 | (unsigned char)*text;
    }
    size_t slot = slot_of(name);
    names[slot].name = name;
    names[slot].kind = kind;
    return name;
}

static void
add_names(void)
{
    for (size_t index = 0; index < sizeof(EMPTY_NAMES) / sizeof(*EMPTY_NAMES); index++) {
        add_name(EMPTY_NAMES[index], EMPTY);
    }
    for (size_t index = 0; index < sizeof(PLAIN_NAMES) / sizeof(*PLAIN_NAMES); index++) {
        add_name(PLAIN_NAMES[index], PLAIN);
    }
    for (size_t index = 0; index < sizeof(FORMATTING_NAMES) / sizeof(*FORMATTING_NAMES); index++) {
        add_name(FORMATTING_NAMES[index], FORMATTING + (int)index);
    }
    add_name("html", ROOT);
    add_name("body", ROOT);
    name_p = add_name("p", PLAIN);
    name_br = add_name("br", EMPTY);
    name_a = add_name("a", FORMATTING);
}

/* Characters */

enum { SPACE = 1, LETTER = 2, IN_NAME = 4, IN_VALUE = 8, IN_QUOTES = 16 };

static unsigned char kinds[256];

static void
add_characters(void)
{
    for (int c = 0; c < 256; c++) {
        int is_control = c <= ' ';
        kinds[c] = (unsigned char)((c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' ? SPACE : 0)
                                   | ((c | 0x20) >= 'a' && (c | 0x20) <= 'z' && c < 128 ? LETTER : 0)
                                   | (is_control || strchr("<>\"'=/", c) ? 0 : IN_NAME)
                                   | (is_control || strchr("<>\"'=`", c) ? 0 : IN_VALUE)
                                   | (c != 0 && strchr("<>\"'", c) ? 0 : IN_QUOTES));
    }
}

/* A tag */

typedef struct {
    uint64_t name; /* 0 for a name of more than eight characters */
    size_t attributes;
    size_t length;
} Tag;

/* Read a tag from its name to its ">". Return what follows, or NULL for a tag that a parser might read in another way. */
static const unsigned char *
read_tag(const unsigned char *at, const unsigned char *end, Tag *tag)
{
    const unsigned char *start = at;
    uint64_t name = 0;
    for (; at < end && (kinds[*at] & IN_NAME); at++) {
        name = name << 8 | (kinds[*at] & LETTER ? *at | 0x20 : *at);
    }
    tag->name = at - start <= 8 ? name : 0;
    tag->attributes = 0;
    if (at < end && *at == '>') {
        tag->length = (size_t)(at - start);
        return at + 1;
    }
    for (int is_quoted = 0;;) { /* whether a quote has ended; no space is needed between it and the next attribute */
        const unsigned char *before = at;
        while (at < end && (kinds[*at] & SPACE)) {
            at++;
        }
        if (at < end && *at == '/') {
            at++;
            if (at == end || *at != '>') {
                return NULL;
            }
        }
        if (at == end) {
            return NULL;
        }
        if (*at == '>') {
            tag->length = (size_t)(at - start);
            return at + 1;
        }
        if ((at == before && !is_quoted) || !(kinds[*at] & IN_NAME) || ++tag->attributes > MAX_ATTRIBUTES) {
            return NULL;
        }
        is_quoted = 0;
        while (at < end && (kinds[*at] & IN_NAME)) {
            at++;
        }
        if (at == end || *at != '=') {
            continue;
        }
        at++;
        if (at < end && (*at == '"' || *at == '\'')) {
            unsigned char quote = *at++;
            while (at < end && ((kinds[*at] & IN_QUOTES) || (*at != quote && *at != '<' && *at != '>'))) {
                at++;
            }
            if (at == end || *at != quote) {
                return NULL;
            }
            at++;
            is_quoted = 1;
        }
        else {
            const unsigned char *value = at;
            while (at < end && (kinds[*at] & IN_VALUE)) {
                at++;
            }
            if (at == value || at == end || !((kinds[*at] & SPACE) || *at == '>')) {
                return NULL;
            }
        }
    }
}

/* Formatting elements that may be open */

typedef struct {
    struct {
        int kind;
        int inside; /* tags that were opened since */
    } awaited[MAX_OPEN];
    size_t first, count;
    uint64_t open;    /* all that may be open, with those that are not awaited */
    uint64_t largest; /* bytes of the largest */
} Formatting;

static void
await_none(Formatting *formatting)
{
    formatting->count = 0;
}

/* Note that an element with an end tag of this kind is closed: the last one. */
static void
close_last(Formatting *formatting, int kind)
{
    for (size_t index = formatting->count; index > 0; index--) {
        if (formatting->awaited[index - 1].kind == kind) {
            formatting->count--;
            memmove(&formatting->awaited[index - 1], &formatting->awaited[index],
                    (formatting->count - (index - 1)) * sizeof(formatting->awaited[0]));
            formatting->open--;
            return;
        }
    }
}

static void
forget_first(Formatting *formatting)
{
    formatting->count--;
    memmove(&formatting->awaited[0], &formatting->awaited[1], formatting->count * sizeof(formatting->awaited[0]));
}

/* Note that a tag was opened inside of all open elements. */
static void
count_inside(Formatting *formatting)
{
    for (size_t index = 0; index < formatting->count; index++) {
        formatting->awaited[index].inside++;
    }
    while (formatting->count > 0 && formatting->awaited[0].inside > MAX_INSIDE) {
        forget_first(formatting);
    }
}

static void
open_one(Formatting *formatting, int kind, uint64_t bytes)
{
    if (formatting->count == MAX_OPEN) {
        forget_first(formatting);
    }
    formatting->awaited[formatting->count].kind = kind;
    formatting->awaited[formatting->count].inside = 0;
    formatting->count++;
    formatting->open++;
    if (bytes > formatting->largest) {
        formatting->largest = bytes;
    }
}

/* Elements that may be open */

typedef struct {
    uint64_t names[MAX_NESTED]; /* those inside of all others */
    size_t sizes[MAX_NESTED];   /* each with the elements that it may have brought along */
    size_t count;
    size_t depth; /* of all that may be open */
} Nesting;

static void
nest(Nesting *nesting, uint64_t name, size_t size)
{
    nesting->depth += size;
    if (nesting->count == MAX_NESTED) { /* the outermost one will count as open to the end */
        nesting->count--;
        memmove(nesting->names, nesting->names + 1, nesting->count * sizeof(*nesting->names));
        memmove(nesting->sizes, nesting->sizes + 1, nesting->count * sizeof(*nesting->sizes));
    }
    nesting->names[nesting->count] = name;
    nesting->sizes[nesting->count] = size;
    nesting->count++;
}

/* An end tag closes the innermost element, and all that it has brought along. Any other end tag may be ignored. */
static void
unnest(Nesting *nesting, uint64_t name)
{
    if (nesting->count > 0 && name != 0 && nesting->names[nesting->count - 1] == name) {
        nesting->count--;
        nesting->depth -= nesting->sizes[nesting->count];
    }
}

/* Return whether a comment or a declaration ends before the next "<", so that it hides no tag. */
static int
ends_soon(const unsigned char *at, const unsigned char *end)
{
    const unsigned char *next = memchr(at, '<', (size_t)(end - at));
    size_t length = (size_t)((next == NULL ? end : next) - at);
    if (length > 1 && at[0] == '!' && (kinds[at[1]] & LETTER)) {
        return memchr(at, '>', length) != NULL;
    }
    if (length < 6 || memcmp(at, "!--", 3) != 0) {
        return 0;
    }
    for (size_t index = 5; index < length; index++) {
        if (at[index] == '>' && at[index - 1] == '-' && at[index - 2] == '-') {
            return 1;
        }
    }
    return 0;
}

/* Return the bound for a page, or -1 if there is none, or if it is above the limit. */
static int64_t
bound_of(const unsigned char *start, size_t length, uint64_t limit)
{
    const unsigned char *at = start, *end = start + length;
    uint64_t bytes = CHARACTER * (uint64_t)length;
    uint64_t steps = 0;
    size_t root_attributes = 0;
    Nesting nesting = {.count = 0, .depth = 0};
    Formatting formatting = {.count = 0, .open = 0, .largest = 0};
    if (memchr(start, 0, length) != NULL) { /* the parser takes 80 ns for each */
        return -1;
    }
    while (bytes <= limit && (at = memchr(at, '<', (size_t)(end - at))) != NULL) {
        at++;
        int is_end = at < end && *at == '/';
        const unsigned char *name = at + is_end;
        bytes += TEXT;
        if (name == end || !(kinds[*name] & LETTER)) {
            if (at < end && (is_end || *at == '!' || *at == '?')) {
                bytes += ELEMENT;
                if (!ends_soon(at, end)) {
                    await_none(&formatting);
                    nesting.count = 0;
                }
            }
            continue; /* what follows may have tags all the same */
        }
        Tag tag;
        at = read_tag(name, end, &tag);
        if (at == NULL || (is_end && tag.attributes > 0)) {
            return -1;
        }
        int kind = tag.name == 0 ? OTHER : names[slot_of(tag.name)].kind;
        if (kind == OTHER || kind == ROOT) {
            await_none(&formatting);
        }
        else if (!is_end) {
            count_inside(&formatting);
        }
        if (kind >= FORMATTING && (is_end || tag.name == name_a)) { /* <a> closes another one */
            close_last(&formatting, kind);
        }
        bytes += formatting.open * formatting.largest; /* they are opened again */
        size_t depth = nesting.depth + (size_t)formatting.open;
        if ((steps += depth < MAX_DEPTH ? depth : MAX_DEPTH) > MAX_STEPS) {
            return -1;
        }
        if (is_end) {
            bytes += kind == OTHER || tag.name == name_p || tag.name == name_br ? ELEMENT : 0;
            unnest(&nesting, tag.name);
            continue;
        }
        if (kind == OTHER || kind >= PLAIN) {
            nest(&nesting, tag.name, kind == OTHER ? IMPLIED : 1);
        }
        uint64_t attributes = tag.attributes * ATTRIBUTE;
        bytes += attributes;
        bytes += (kind == OTHER ? IMPLIED : 1) * (ELEMENT + MOVED * formatting.open * formatting.largest);
        if (kind >= FORMATTING) {
            open_one(&formatting, kind, ELEMENT + attributes + CHARACTER * (uint64_t)tag.length);
        }
        else if (kind == ROOT && (root_attributes += tag.attributes) > MAX_ROOT_ATTRIBUTES) {
            return -1;
        }
    }
    return bytes <= limit ? (int64_t)bytes : -1;
}

/* The module */

static PyObject *
tree_bound(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *text;
    Py_ssize_t length;
    unsigned long long limit;
    if (!PyArg_ParseTuple(args, "s#K", &text, &length, &limit)) {
        return NULL;
    }
    return PyLong_FromLongLong(bound_of((const unsigned char *)text, (size_t)length, limit));
}

static PyObject *
has_tag(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *text, *name;
    Py_ssize_t length, name_length;
    if (!PyArg_ParseTuple(args, "s#s#", &text, &length, &name, &name_length)) {
        return NULL;
    }
    const char *at = text, *end = text + length;
    while ((at = memchr(at, '<', (size_t)(end - at))) != NULL) {
        at++;
        Py_ssize_t index = 0;
        while (index < name_length && index < end - at && (at[index] | 0x20) == name[index]) {
            index++;
        }
        if (index == name_length) {
            Py_RETURN_TRUE;
        }
    }
    Py_RETURN_FALSE;
}

#define BLOCK 240 /* bytes, so that their count fits into a byte, and the compiler can use vector instructions */

static inline unsigned char
count_in_block(const char *at, Py_ssize_t length)
{
    unsigned char count = 0;
    for (Py_ssize_t index = 0; index < length; index++) {
        count += at[index] == '<';
    }
    return count;
}

static PyObject *
count_tags(PyObject *Py_UNUSED(module), PyObject *page)
{
    char *at;
    Py_ssize_t length, count = 0;
    if (PyBytes_AsStringAndSize(page, &at, &length) < 0) {
        return NULL;
    }
    for (; length >= BLOCK; at += BLOCK, length -= BLOCK) {
        count += count_in_block(at, BLOCK);
    }
    return PyLong_FromSsize_t(count + count_in_block(at, length));
}

static PyMethodDef functions[] = {
    {"count_tags", count_tags, METH_O, NULL},
    {"has_tag", has_tag, METH_VARARGS, NULL},
    {"tree_bound", tree_bound, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "skitter.html._tags",
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__tags(void)
{
    add_characters();
    add_names();
    return PyModuleDef_Init(&module);
}
