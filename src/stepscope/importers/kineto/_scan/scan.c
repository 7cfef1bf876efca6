/* Scanner of trace events: the text of a block in, rows of numbers out.

   A block is `event, event, ...`. Each event of a known kind becomes one row of 64-bit fields;
   strings become codes. The kinds, their arguments and the fields come from Python (`binding.py`),
   which makes columns of the rows.

   The scanner takes only what it certainly understands as msgspec does: valid JSON, ASCII strings
   without escapes, plain integers, decimals that are exact, keys of the kind, each once. The extents of
   all other events are returned for the Python decoder, which is the definition of every result. If
   the text is no JSON, or an event is nested deeply, the whole block is refused.

   Recorders write the keys of one kind of events in one order and form. So the text between two values
   is compared with what followed the same key before: a comma, the next key and its colon, or the end
   of the object.

       texts.h        interned strings
       values.h       any JSON value: its extent and type; `Value.is_odd` marks what is left to Python
       scan_event     one event as a few values
       take_event     the kind of an event, and its row
*/

#include "values.h"

enum { GUESSES = 4, MAX_KEYS = 256, MAX_KINDS = 32, MAX_ARGUMENTS = 48, MAX_LABEL = 256 };
enum { INTEGER, NUMBER, STRING, JSON, SIZES, UNUSED };                /* types of arguments */
enum { NULLABLE = 1, ZERO_IS_ABSENT = 2, IN_ARGS = 4, CONDITIONAL = 8 }; /* their flags */
enum { ORDER, TRACK, NAME, START, DURATION, ARGS, ARGS_ALL, FIRST_ARGUMENT }; /* fields of a row */
enum { MAX_FIELDS = FIRST_ARGUMENT + 3 * MAX_ARGUMENTS };
enum { FLOW_PHASE = DURATION, FLOW_CATEGORY, FLOW_ID };
enum { SCANNED = 0, REFUSED = 1, NO_MEMORY = 2 };
enum { KIND_LAUNCH_FLOW = -2, KIND_NONE = -1 };
enum { FIRST = -1, UNKNOWN = MAX_KEYS, CLOSED }; /* in place of a key: before the first, after the last */
#define ABSENT (-1)

/* --- what Python describes; the same structures are in binding.py */

typedef struct {
    int32_t key;   /* index in `keys` */
    int32_t type;
    int32_t field; /* of a row, -1 for none */
    int32_t flags;
    int64_t missing; /* value of the field without the argument */
} Argument;

typedef struct {
    int32_t is_range;
    int32_t field_count;
    int32_t argument_count;
    Argument arguments[MAX_ARGUMENTS];
} Kind;

typedef struct {
    const char *text;
    int32_t length;
    int32_t kind; /* of a category or of the name of an instant */
} Label;

/* --- the scanner */

enum { PHASE, CATEGORY, EVENT_NAME, PID, TID, TIME, EVENT_DURATION, ID, MEMBER_COUNT, /* of an event */
       ARGUMENTS = MEMBER_COUNT, OTHER_MEMBER };

typedef struct {
    Value members[MEMBER_COUNT];
    bool has_args, is_odd;
    int32_t argument_count;
    int32_t keys[MAX_ARGUMENTS];
    Value arguments[MAX_ARGUMENTS + 1]; /* the last one is not kept */
} Event;

typedef struct {
    Value parts[2]; /* PID and TID */
    int64_t code;   /* -1 before the first event */
} Track;

typedef struct {
    int32_t key;
    Span text; /* from the end of a value, or after the opening brace; no start for none */
} Guess;

/* What came first (0), or followed a key (its index + 1), the latest before the others. */
typedef Guess Habits[UNKNOWN + 2][GUESSES];

typedef struct {
    Label keys[MAX_KEYS]; /* of arguments; `kind` is unused */
    int32_t key_count;
    int16_t key_slots[4 * MAX_KEYS]; /* index + 1 by hash */
    Habits member_habits, argument_habits;
    Label categories[MAX_KEYS], instants[MAX_KINDS];
    int32_t category_count, instant_count;
    Kind kinds[MAX_KINDS];
    int8_t argument_of[MAX_KINDS][MAX_KEYS]; /* argument of a key, -1 for none */
    int64_t missing[MAX_KINDS][MAX_FIELDS];  /* fields of a row without arguments */
    int32_t kind_count, flow_kind;

    Vector rows[MAX_KINDS]; /* int64_t */
    Vector odd; /* int64_t: index, start and end of each event that is left to Python */
    Texts strings, tracks;
    int64_t event_count, flow_starts, flow_ends;
    Track last_track;
    const uint8_t *end; /* of the text */
    bool no_memory;
} Scanner;

/* --- labels: keys, categories, names of instants */

static int32_t key_of(const Scanner *scanner, Span text) {
    uint64_t at = hash_of(text.start, length_of(text)) % (4 * MAX_KEYS);
    for (; scanner->key_slots[at]; at = (at + 1) % (4 * MAX_KEYS)) {
        int32_t key = scanner->key_slots[at] - 1;
        if (equals(text, scanner->keys[key].text, scanner->keys[key].length)) return key;
    }
    return UNKNOWN;
}

/* Return the member of an event that a key names; OTHER_MEMBER for keys that mean nothing here. */
static int32_t member_of(const Scanner *scanner, Span key) {
    static const char names[][5] = {"ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args"};
    (void)scanner;
    for (int32_t member = 0; member < OTHER_MEMBER; member++)
        if (equals(key, names[member], (int64_t)strlen(names[member]))) return member;
    return OTHER_MEMBER;
}

/* Put a guess before the first `count` of the others, of which the next one is forgotten. */
static void put_first(Guess *guesses, int count, Guess guess) {
    for (; count > 0; count--) guesses[count] = guesses[count - 1];
    guesses[0] = guess;
}

/* Scan what is between two values of an object, or before the first: comma, key and colon; or its end.

   `key` is the one before, and becomes what `find` says about the text of the next one, or CLOSED.
   Returns the start of the value, after the end of a closed object; NULL: not JSON. */
ALWAYS_INLINE const uint8_t *scan_key(const Scanner *scanner, Habits habits, const uint8_t *at,
                                      int32_t (*find)(const Scanner *, Span), int32_t *key,
                                      bool *is_odd) {
    const uint8_t *end = scanner->end, *first = at;
    Guess *following = habits[*key + 1];
    for (int number = 0; number < GUESSES && following[number].text.start; number++) {
        Guess guess = following[number];
        if (end - at < length_of(guess.text) || !same_bytes(guess.text.start, at, length_of(guess.text)))
            continue;
        if (number) put_first(following, number, guess);
        *key = guess.key;
        at += length_of(guess.text);
        return *key == CLOSED ? at : skip_blanks(at, end);
    }
    at = skip_blanks(at, end);
    if (at == end) return NULL;
    if (*at == '}') {
        *key = CLOSED;
        put_first(following, GUESSES - 1, (Guess){CLOSED, {first, at + 1}});
        return at + 1;
    }
    if (*key != FIRST) {
        if (*at != ',') return NULL;
        at = skip_blanks(at + 1, end);
    }
    if (at == end || *at != '"') return NULL;
    bool is_odd_key = false;
    Span text = {at + 1, scan_string(at + 1, end, &is_odd_key)};
    if (!text.end) return NULL;
    at = skip_blanks(text.end + 1, end);
    if (at == end || *at != ':') return NULL;
    at = skip_blanks(at + 1, end);
    *is_odd |= is_odd_key;
    *key = find(scanner, text);
    if (*key != UNKNOWN && !is_odd_key)
        put_first(following, GUESSES - 1, (Guess){*key, {first, at}});
    return at;
}

static int32_t find_label(const Label *labels, int32_t count, Span text) {
    for (int32_t index = 0; index < count; index++)
        if (equals(text, labels[index].text, labels[index].length)) return labels[index].kind;
    return KIND_NONE;
}

/* Return the kind of an event that is not odd; KIND_NONE leaves it to Python. */
static int32_t kind_of(const Scanner *scanner, const Event *event) {
    uint8_t phase = *event->members[PHASE].text.start;
    if (phase == 'i' || phase == 'I')
        return find_label(scanner->instants, scanner->instant_count, event->members[EVENT_NAME].text);
    bool is_flow = phase == 's' || phase == 't' || phase == 'f';
    if (!is_flow && phase != 'X') return KIND_NONE;
    uint8_t lower[64];
    int64_t length = length_of(event->members[CATEGORY].text);
    if (length > (int64_t)sizeof lower) return KIND_NONE;
    for (int64_t i = 0; i < length; i++) {
        uint8_t c = event->members[CATEGORY].text.start[i];
        lower[i] = c >= 'A' && c <= 'Z' ? (uint8_t)(c + 32) : c;
    }
    Span category = {lower, lower + length};
    int32_t kind = find_label(scanner->categories, scanner->category_count, category);
    if (is_flow) return kind == KIND_LAUNCH_FLOW ? kind : scanner->flow_kind;
    return kind == KIND_LAUNCH_FLOW ? KIND_NONE : kind;
}

/* --- events */

static const uint8_t *scan_args(Scanner *scanner, const uint8_t *at, Event *event) {
    int32_t key = FIRST;
    for (;;) {
        at = scan_key(scanner, scanner->argument_habits, at, key_of, &key, &event->is_odd);
        if (!at || key == CLOSED) return at;
        Value *value = &event->arguments[event->argument_count];
        value->is_odd = false;
        at = scan_value(at, scanner->end, 2, value);
        if (!at) return NULL;
        event->is_odd |= value->is_odd || key == UNKNOWN || event->argument_count == MAX_ARGUMENTS;
        if (!event->is_odd) event->keys[event->argument_count++] = key;
    }
}

/* Scan an event from after its opening brace to after its closing one; NULL: not JSON. */
static const uint8_t *scan_event(Scanner *scanner, const uint8_t *at, Event *event) {
    const uint8_t *end = scanner->end;
    const Value missing = {.type = NOTHING, .text = {(const uint8_t *)"", (const uint8_t *)""}};
    for (int32_t member = 0; member < MEMBER_COUNT; member++) {
        event->members[member].type = missing.type;
        event->members[member].text = missing.text;
    }
    event->has_args = event->is_odd = false;
    event->argument_count = 0;
    int32_t key = FIRST;
    for (;;) {
        at = scan_key(scanner, scanner->member_habits, at, member_of, &key, &event->is_odd);
        if (!at || key == CLOSED) return at;
        if (key == ARGUMENTS && at < end && *at == '{' && !event->has_args) {
            event->has_args = true;
            at = scan_args(scanner, at + 1, event);
        } else {
            Value *value = key < MEMBER_COUNT ? &event->members[key] : &event->arguments[MAX_ARGUMENTS];
            /* A key that occurs twice, null, and arguments that are no object are for Python. */
            bool is_odd = key == ARGUMENTS || (key < MEMBER_COUNT && value->type != NOTHING);
            value->is_odd = false;
            at = scan_value(at, end, 1, value);
            event->is_odd |= is_odd || value->is_odd || (key < MEMBER_COUNT && value->type == NOTHING);
        }
        if (!at) return NULL;
    }
}

/* --- rows */

/* Return the code of a JSON text without whitespace; a string without its quotes. */
static int64_t intern_json(Scanner *scanner, const Value *value) {
    if (value->type == TEXT) return intern(&scanner->strings, value->text);
    uint8_t *target = room(&scanner->strings, length_of(value->text)), *out = target;
    if (!target) return -1;
    bool in_string = false;
    for (const uint8_t *at = value->text.start; at < value->text.end; at++) {
        if (*at == '"') in_string = !in_string;
        if (in_string || !is_blank(*at)) *out++ = *at;
    }
    return intern_last(&scanner->strings, out - target);
}

static bool three_sizes(const Value *value, int64_t *fields) {
    if (value->type != ARRAY) return false;
    const uint8_t *end = value->text.end - 1, *at = skip_blanks(value->text.start + 1, end);
    int count = 0;
    while (at < end) {
        Value size = {.is_odd = false};
        if (count == 3) return false;
        at = scan_value(at, end, MAX_DEPTH, &size);
        if (!at || size.type != WHOLE) return false;
        fields[count++] = size.whole < -1 || size.whole > INT32_MAX ? ABSENT : size.whole;
        at = skip_blanks(at, end);
        if (at < end) at = skip_blanks(at + 1, end); /* the comma */
    }
    for (int axis = count; axis < 3; axis++) fields[axis] = count ? 1 : ABSENT;
    return true;
}

/* Write one argument to its field; false leaves the event to Python. */
static bool take_argument(Scanner *scanner, const Argument *argument, const Value *value,
                          int64_t *row) {
    int64_t *field = argument->field >= 0 ? row + argument->field : NULL;
    double number;
    switch (argument->type) {
    case INTEGER:
        if (value->type == NOTHING && argument->flags & NULLABLE) return true;
        if (value->type != WHOLE) return false;
        if (field) *field = argument->flags & ZERO_IS_ABSENT && value->whole <= 0 ? ABSENT : value->whole;
        return true;
    case NUMBER:
        if (!double_of(value, &number)) return false;
        if (field) memcpy(field, &number, sizeof number);
        return true;
    case STRING:
        if (value->type != TEXT) return false;
        if (field && length_of(value->text)) *field = intern(&scanner->strings, value->text);
        break;
    case JSON:
        if (field) *field = intern_json(scanner, value);
        break;
    case SIZES:
        return three_sizes(value, field);
    default:
        return true;
    }
    if (field && *field < 0 && (argument->type == JSON || length_of(value->text)))
        scanner->no_memory = true;
    return true;
}

static bool is_present(const Argument *argument, const Value *value) {
    if (argument->type == INTEGER)
        return value->type == WHOLE &&
               (argument->flags & ZERO_IS_ABSENT ? value->whole > 0 : value->whole != ABSENT);
    return argument->type == JSON || length_of(value->text) > 0;
}

/* Return the code of the JSON object of arguments without a field of their own, -1 for none. */
static int64_t intern_args(Scanner *scanner, const Kind *kind, const Value **values,
                           uint64_t present, bool conditional) {
    int64_t size = 2;
    for (int32_t i = 0; i < kind->argument_count; i++)
        if (kind->arguments[i].flags & IN_ARGS && present >> i & 1)
            size += scanner->keys[kind->arguments[i].key].length + length_of(values[i]->text) + 6;
    uint8_t *target = room(&scanner->strings, size), *out = target;
    if (!target) {
        scanner->no_memory = true;
        return ABSENT;
    }
    for (int32_t i = 0; i < kind->argument_count; i++) {
        const Argument *argument = &kind->arguments[i];
        if (!(argument->flags & IN_ARGS) || !(present >> i & 1)) continue;
        const Value *value = values[i];
        if (!is_present(argument, value)) continue;
        if (argument->flags & CONDITIONAL && !conditional) continue;
        const Label *key = &scanner->keys[argument->key];
        *out = out == target ? '{' : ',';
        out++;
        *out++ = '"';
        memcpy(out, key->text, (size_t)key->length);
        out += key->length;
        *out++ = '"';
        *out++ = ':';
        if (value->type == TEXT) *out++ = '"';
        bool in_string = value->type == TEXT;
        for (const uint8_t *at = value->text.start; at < value->text.end; at++) {
            if (*at == '"') in_string = !in_string;
            if (in_string || !is_blank(*at)) *out++ = *at;
        }
        if (value->type == TEXT) *out++ = '"';
    }
    if (out == target) return ABSENT;
    *out++ = '}';
    int64_t code = intern_last(&scanner->strings, out - target);
    scanner->no_memory |= code < 0;
    return code;
}

static bool take_arguments(Scanner *scanner, int32_t number, const Event *event, int64_t *row) {
    const Kind *kind = &scanner->kinds[number];
    const Value *values[MAX_ARGUMENTS]; /* of those in `present` */
    uint64_t present = 0;
    bool has_args = false, has_conditional = false;
    for (int32_t field = FIRST_ARGUMENT; field < kind->field_count; field++)
        row[field] = scanner->missing[number][field];
    for (int32_t i = 0; i < event->argument_count; i++) {
        int index = scanner->argument_of[number][event->keys[i]];
        if (index < 0 || present >> index & 1) return false; /* of another kind, or a second time */
        present |= (uint64_t)1 << index;
        values[index] = &event->arguments[i];
        if (!take_argument(scanner, &kind->arguments[index], values[index], row)) return false;
        has_args |= (kind->arguments[index].flags & IN_ARGS) != 0;
        has_conditional |= (kind->arguments[index].flags & CONDITIONAL) != 0;
    }
    row[ARGS] = has_args ? intern_args(scanner, kind, values, present, false) : ABSENT;
    row[ARGS_ALL] = has_conditional ? intern_args(scanner, kind, values, present, true) : row[ARGS];
    return true;
}

static bool same_value(const Value *one, const Value *other) {
    return one->type == other->type && length_of(one->text) == length_of(other->text) &&
           same_bytes(one->text.start, other->text.start, length_of(one->text));
}

/* Return the code of a process and a thread: numbers, or strings that begin with a quote. */
static int64_t track_of(Scanner *scanner, const Event *event) {
    const Value *parts = &event->members[PID]; /* and TID */
    Track *last = &scanner->last_track;        /* events of one thread follow each other */
    if (last->code >= 0 && same_value(&parts[0], &last->parts[0]) &&
        same_value(&parts[1], &last->parts[1]))
        return last->code;
    uint8_t label[2 * MAX_LABEL + 8], *out = label;
    for (int part = 0; part < 2; part++) {
        if (length_of(parts[part].text) > MAX_LABEL) return -1;
        if (parts[part].type != WHOLE) *out++ = '"'; /* a missing one is an empty string */
        memcpy(out, parts[part].text.start, (size_t)length_of(parts[part].text));
        out += length_of(parts[part].text);
        if (!part) *out++ = '\0';
    }
    int64_t code = intern(&scanner->tracks, (Span){label, out});
    scanner->no_memory |= code < 0;
    *last = (Track){{parts[0], parts[1]}, code};
    return code;
}

/* Return true if the members of an event have the usual types. */
static bool is_usual(const Event *event) {
    const Value *texts[] = {&event->members[EVENT_NAME], &event->members[CATEGORY]};
    const Value *labels[] = {&event->members[PID], &event->members[TID], &event->members[ID]};
    for (int i = 0; i < 2; i++)
        if (texts[i]->type != TEXT && texts[i]->type != NOTHING) return false;
    for (int i = 0; i < 3; i++)
        if (labels[i]->type != TEXT && labels[i]->type != WHOLE && labels[i]->type != NOTHING)
            return false;
    return !event->is_odd;
}

/* Add the row of an event; false leaves it to Python. */
static bool take_event(Scanner *scanner, const Event *event, int64_t order) {
    if (!is_usual(event)) return false;
    int32_t kind = kind_of(scanner, event);
    if (kind == KIND_LAUNCH_FLOW) { /* these are only counted */
        if (*event->members[PHASE].text.start == 's') scanner->flow_starts++;
        else scanner->flow_ends++;
        return true;
    }
    if (kind == KIND_NONE) return false;
    bool is_flow = kind == scanner->flow_kind;
    Vector *rows = &scanner->rows[kind];
    int32_t field_count = scanner->kinds[kind].field_count;
    if (!reserve(rows, field_count, 8)) {
        scanner->no_memory = true;
        return false;
    }
    int64_t *row = (int64_t *)rows->data + rows->count;
    row[ORDER] = order;
    row[TRACK] = track_of(scanner, event);
    if (row[TRACK] < 0 || !nanoseconds_of(&event->members[TIME], &row[START])) return false;
    row[NAME] = intern(&scanner->strings, event->members[EVENT_NAME].text);
    if (is_flow) {
        if (event->members[ID].type != WHOLE) return false;
        row[FLOW_PHASE] = intern(&scanner->strings, event->members[PHASE].text);
        row[FLOW_CATEGORY] = intern(&scanner->strings, event->members[CATEGORY].text);
        row[FLOW_ID] = event->members[ID].whole;
        scanner->no_memory |= row[FLOW_PHASE] < 0 || row[FLOW_CATEGORY] < 0;
    } else {
        row[DURATION] = 0;
        if (scanner->kinds[kind].is_range && !nanoseconds_of(&event->members[EVENT_DURATION], &row[DURATION]))
            return false;
        if (!take_arguments(scanner, kind, event, row)) return false;
    }
    scanner->no_memory |= row[NAME] < 0;
    rows->count += field_count;
    return true;
}

/* Leave an event to Python; false without memory. */
static bool add_odd(Scanner *scanner, int64_t start, int64_t end) {
    if (!reserve(&scanner->odd, 3, 8)) return false;
    int64_t *odd = (int64_t *)scanner->odd.data + scanner->odd.count;
    odd[0] = scanner->event_count;
    odd[1] = start;
    odd[2] = end;
    scanner->odd.count += 3;
    return true;
}

static int scan_events(Scanner *scanner, const uint8_t *text, int64_t length) {
    scanner->end = text + length;
    const uint8_t *at = skip_blanks(text, scanner->end);
    Event event;
    while (at < scanner->end) {
        const uint8_t *start = at;
        if (*at != '{') return REFUSED;
        at = scan_event(scanner, at + 1, &event);
        if (!at) return REFUSED;
        bool is_event = event.members[PHASE].type != NOTHING || event.is_odd;
        if (is_event) {
            if (event.members[PHASE].type != TEXT || length_of(event.members[PHASE].text) != 1) return REFUSED;
            if (!take_event(scanner, &event, scanner->event_count) &&
                !add_odd(scanner, start - text, at - text))
                return NO_MEMORY;
            if (scanner->no_memory) return NO_MEMORY;
            scanner->event_count++;
        }
        at = skip_blanks(at, scanner->end);
        if (at == scanner->end) break;
        if (*at != ',') return REFUSED;
        at = skip_blanks(at + 1, scanner->end);
        if (at == scanner->end) return REFUSED; /* a comma at the end */
    }
    return SCANNED;
}

/* --- the interface */

const char *stepscope_source_digest(void) { return SOURCE_DIGEST; }

/* Create a scanner; NULL without memory, or when there are too many kinds or keys. */
void *stepscope_scan_create(const Kind *kinds, int32_t kind_count, int32_t flow_kind,
                            const Label *keys, int32_t key_count, const Label *categories,
                            int32_t category_count, const Label *instants, int32_t instant_count) {
    if (kind_count > MAX_KINDS || key_count > MAX_KEYS || category_count > MAX_KEYS ||
        instant_count > MAX_KINDS)
        return NULL;
    Scanner *scanner = calloc(1, sizeof *scanner);
    if (!scanner) return NULL;
    memcpy(scanner->kinds, kinds, (size_t)kind_count * sizeof *kinds);
    memcpy(scanner->keys, keys, (size_t)key_count * sizeof *keys);
    memcpy(scanner->categories, categories, (size_t)category_count * sizeof *categories);
    memcpy(scanner->instants, instants, (size_t)instant_count * sizeof *instants);
    scanner->kind_count = kind_count;
    scanner->flow_kind = flow_kind;
    scanner->key_count = key_count;
    scanner->category_count = category_count;
    scanner->instant_count = instant_count;
    memset(scanner->argument_of, -1, sizeof scanner->argument_of);
    for (int32_t kind = 0; kind < kind_count; kind++)
        for (int32_t i = 0; i < kinds[kind].argument_count; i++) {
            const Argument *argument = &kinds[kind].arguments[i];
            scanner->argument_of[kind][argument->key] = (int8_t)i;
            int fields = argument->field < 0 ? 0 : argument->type == SIZES ? 3 : 1;
            for (int field = 0; field < fields; field++)
                scanner->missing[kind][argument->field + field] = argument->missing;
        }
    for (int32_t key = 0; key < key_count; key++) {
        uint64_t at = hash_of((const uint8_t *)keys[key].text, keys[key].length) % (4 * MAX_KEYS);
        while (scanner->key_slots[at]) at = (at + 1) % (4 * MAX_KEYS);
        scanner->key_slots[at] = (int16_t)(key + 1);
    }
    if (!grow_slots(&scanner->strings) || !grow_slots(&scanner->tracks)) {
        free_texts(&scanner->strings), free_texts(&scanner->tracks), free(scanner);
        return NULL;
    }
    return scanner;
}

void stepscope_scan_free(Scanner *scanner) {
    for (int32_t kind = 0; kind < scanner->kind_count; kind++) free(scanner->rows[kind].data);
    free(scanner->odd.data);
    free_texts(&scanner->strings), free_texts(&scanner->tracks);
    free(scanner);
}

typedef struct {
    int64_t event_count, flow_starts, flow_ends, odd_count, string_count, string_bytes, track_count,
        track_bytes;
    const int64_t *odd, *string_ends, *track_ends;
    const uint8_t *strings, *tracks;
    const int64_t *rows[MAX_KINDS];
    int64_t row_counts[MAX_KINDS];
} Result;

/* Scan a block; what `result` points to stays until the next one.

   Returns SCANNED, REFUSED (no text that this scanner understands) or NO_MEMORY. */
int stepscope_scan(Scanner *scanner, const uint8_t *text, int64_t length, Result *result) {
    scanner->event_count = scanner->flow_starts = scanner->flow_ends = 0;
    scanner->odd.count = 0;
    scanner->last_track.code = -1;
    scanner->no_memory = false;
    for (int32_t kind = 0; kind < scanner->kind_count; kind++) scanner->rows[kind].count = 0;
    forget_texts(&scanner->strings), forget_texts(&scanner->tracks);
    memset(scanner->member_habits, 0, sizeof scanner->member_habits);
    memset(scanner->argument_habits, 0, sizeof scanner->argument_habits);
    int status = scan_events(scanner, text, length);
    *result = (Result){
        .event_count = scanner->event_count,
        .flow_starts = scanner->flow_starts,
        .flow_ends = scanner->flow_ends,
        .odd_count = scanner->odd.count / 3,
        .odd = scanner->odd.data,
        .string_count = scanner->strings.ends.count,
        .string_bytes = scanner->strings.bytes.count,
        .string_ends = scanner->strings.ends.data,
        .strings = scanner->strings.bytes.data,
        .track_count = scanner->tracks.ends.count,
        .track_bytes = scanner->tracks.bytes.count,
        .track_ends = scanner->tracks.ends.data,
        .tracks = scanner->tracks.bytes.data,
    };
    for (int32_t kind = 0; kind < scanner->kind_count; kind++) {
        result->rows[kind] = scanner->rows[kind].data;
        result->row_counts[kind] = scanner->rows[kind].count / scanner->kinds[kind].field_count;
    }
    return status;
}
