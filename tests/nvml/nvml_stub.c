/* A stand-in for NVIDIA's libnvidia-ml.so.1: GPUs whose power, errors and false readings a test scripts.
 *
 * The scenario is the file $NVML_SCENARIO, which is read when the library is loaded. Each line holds for one GPU, or for
 * the driver (-1), in a window of time; of several lines of a key that hold, the last one does:
 *
 *     GPU FROM UNTIL KEY VALUE
 *
 *     -1  gpus N                       how many there are
 *         name TEXT, uuid TEXT         as the driver writes them
 *         mig UUID                     the GPU is cut, and this is a slice of it
 *         power W                      windows of power do not overlap: energy is its sum over time
 *         limit W, memory MIB
 *         least W, most W              the range of power limits: 100 to 700 W by default
 *         pids PID PID ...             compute on it
 *         shift J                      the energy counter shows so much more
 *         shows MJ                     the energy counter shows this instead
 *         fail FUNCTION CODE BEFORE    functions whose name begins so return this code, BEFORE calls excepted
 *         hang FUNCTION S BEFORE       they take so many seconds
 *
 * Seconds count from nvml_stub_begin(). Before that, only lines hold that are from -inf. In a process that never calls it,
 * $NVML_SECOND is the second at which the library is loaded. nvml_stub_joules() is the truth. A power limit that is set
 * becomes a line of the file, as it outlives the process that has set it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { DRIVER = -1, MAX_GPUS = 64, MAX_LINES = 512, FAR_S = 1000000 };
static const double COUNTER_MJ = 123456789; /* a counter runs since the driver was loaded, not since the training began */

typedef struct { int gpu, is_slice; } Device;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Process;
typedef struct { int gpu; double from, until; char key[16], value[128]; int n_calls; } Line;

static Device devices[MAX_GPUS][2];
static Line lines[MAX_LINES];
static int n_lines, users; /* nvmlInit counts users up, and nvmlShutdown down */
static double loaded_s, zero_s;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void add_line(const char *text)
{
    Line *line = &lines[n_lines];
    if (n_lines < MAX_LINES)
        n_lines += sscanf(text, "%d %lf %lf %15s %127[^\n]", &line->gpu, &line->from, &line->until, line->key, line->value) == 5;
}

__attribute__((constructor)) static void load(void)
{
    const char *path = getenv("NVML_SCENARIO"), *second = getenv("NVML_SECOND");
    FILE *file = path ? fopen(path, "r") : NULL;
    char text[256];
    loaded_s = now_s();
    zero_s = loaded_s - (second ? atof(second) : -FAR_S);
    while (file && fgets(text, sizeof text, file))
        add_line(text);
    if (file)
        fclose(file);
}

static int holds(const Line *line, int gpu, const char *key)
{
    double second = now_s() - zero_s;
    return line->gpu == gpu && !strcmp(line->key, key) && line->from <= second && second < line->until;
}

static const char *text_of(int gpu, const char *key, const char *without)
{
    for (int i = n_lines - 1; i >= 0; i--)
        if (holds(&lines[i], gpu, key))
            return lines[i].value;
    return without;
}

static double number_of(int gpu, const char *key, double without)
{
    const char *text = text_of(gpu, key, NULL);
    return text ? atof(text) : without;
}

void nvml_stub_begin(void) { zero_s = now_s(); }

/* The energy that a GPU has taken since the library was loaded. */
double nvml_stub_joules(int gpu)
{
    double sum = 0, first = loaded_s - zero_s, last = now_s() - zero_s;
    for (const Line *line = lines; line < lines + n_lines; line++)
        if (line->gpu == gpu && !strcmp(line->key, "power"))
            sum += atof(line->value) * fmax(0, fmin(last, line->until) - fmax(first, line->from));
    return sum;
}

/* Hang as long as the scenario says, and return the code that the call is to fail with. */
static int begin(const char *function, int gpu)
{
    int code = users || !strncmp(function, "nvmlInit", 8) ? OK : UNINITIALIZED;
    for (Line *line = lines; line < lines + n_lines; line++) {
        int is_hang = holds(line, gpu, "hang"), before = 0;
        char name[96];
        double value;
        if ((!is_hang && !holds(line, gpu, "fail")) || sscanf(line->value, "%95s %lf %d", name, &value, &before) < 2)
            continue;
        if (strncmp(function, name, strlen(name)) || line->n_calls++ < before)
            continue;
        if (!is_hang)
            code = (int)value;
        else
            nanosleep(&(struct timespec){(time_t)value, (long)(fmod(value, 1) * 1e9)}, NULL);
    }
    return code;
}

static int give(const char *text, char *out, unsigned size)
{
    if (strlen(text) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return OK;
}

static int n_gpus(void) { return (int)number_of(DRIVER, "gpus", 0); }
static const char *slice_of(int gpu) { return text_of(gpu, "mig", ""); }

static Device *device(int gpu, int is_slice)
{
    devices[gpu][is_slice] = (Device){gpu, is_slice};
    return &devices[gpu][is_slice];
}

#define BEGIN(gpu) do { int code = begin(__func__, gpu); if (code) return code; } while (0)
#define GIVES(name, type, value) int name(Device *of, type *out) { BEGIN(of->gpu); *out = (type)(value); return OK; }
#define GIVES_OF_WHOLE(name, type, value) \
    int name(Device *of, type *out) { BEGIN(of->gpu); *out = (type)(value); return of->is_slice ? NOT_SUPPORTED : OK; }
#define SAYS(name, text) int name(Device *of, char *out, unsigned size) { BEGIN(of->gpu); return give(text, out, size); }

int nvmlInitWithFlags(unsigned flags) { (void)flags; BEGIN(DRIVER); users++; return OK; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { BEGIN(DRIVER); users--; return OK; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { BEGIN(DRIVER); return give("550.54.15", out, size); }
const char *nvmlErrorString(int code) { return code == 27 ? "System is not in ready state" : "Unknown Error"; }

int nvmlDeviceGetCount_v2(unsigned *count) { BEGIN(DRIVER); *count = n_gpus(); return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **found)
{
    if (index >= (unsigned)n_gpus())
        return INVALID_ARGUMENT;
    BEGIN((int)index);
    *found = device(index, 0);
    return OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device **found)
{
    for (int gpu = 0; gpu < n_gpus(); gpu++) {
        int is_slice = !strcmp(uuid, slice_of(gpu));
        if (is_slice || !strcmp(uuid, text_of(gpu, "uuid", ""))) {
            BEGIN(gpu);
            *found = device(gpu, is_slice);
            return OK;
        }
    }
    return NOT_FOUND;
}

static double counter_mj(int gpu)
{
    double running_mj = COUNTER_MJ + 1000 * (nvml_stub_joules(gpu) + number_of(gpu, "shift", 0));
    return number_of(gpu, "shows", running_mj);
}

GIVES(nvmlDeviceGetIndex, unsigned, of->gpu)
SAYS(nvmlDeviceGetUUID, of->is_slice ? slice_of(of->gpu) : text_of(of->gpu, "uuid", ""))
SAYS(nvmlDeviceGetName, text_of(of->gpu, "name", ""))
GIVES_OF_WHOLE(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, counter_mj(of->gpu))
GIVES_OF_WHOLE(nvmlDeviceGetPowerUsage, unsigned, 1000 * number_of(of->gpu, "power", 0))
GIVES(nvmlDeviceGetPowerManagementLimit, unsigned, 1000 * number_of(of->gpu, "limit", 700))
GIVES(nvmlDeviceGetEnforcedPowerLimit, unsigned, 1000 * number_of(of->gpu, "limit", 700))
GIVES(nvmlDeviceGetComputeMode, unsigned, 0)

static double least_w(Device *of) { return number_of(of->gpu, "least", 100); }
static double most_w(Device *of) { return number_of(of->gpu, "most", 700); }
int nvmlDeviceGetPowerManagementLimitConstraints(Device *of, unsigned *least, unsigned *most)
{ BEGIN(of->gpu); *least = (unsigned)(1000 * least_w(of)), *most = (unsigned)(1000 * most_w(of)); return OK; }

int nvmlDeviceSetPowerManagementLimit(Device *of, unsigned milliwatts)
{
    double limit = milliwatts / 1000.0;
    char text[64];
    FILE *file;
    BEGIN(of->gpu);
    if (limit < least_w(of) || limit > most_w(of) || !(file = fopen(getenv("NVML_SCENARIO"), "a")))
        return INVALID_ARGUMENT;
    snprintf(text, sizeof text, "%d -inf inf limit %g\n", of->gpu, limit);
    add_line(text);
    fputs(text, file);
    fclose(file);
    return OK;
}

static unsigned long long bytes(Device *of) { return (unsigned long long)number_of(of->gpu, "memory", 81559) << 20; }
int nvmlDeviceGetMemoryInfo(Device *of, Memory *out)
{ BEGIN(of->gpu); *out = (Memory){bytes(of), bytes(of) / 2, bytes(of) / 2}; return OK; }
int nvmlDeviceGetMemoryInfo_v2(Device *of, Memory2 *out)
{ BEGIN(of->gpu); *out = (Memory2){out->version, bytes(of), 0, bytes(of) / 2, bytes(of) / 2}; return OK; }
int nvmlDeviceGetTemperature(Device *of, unsigned sensor, unsigned *celsius)
{ (void)sensor; BEGIN(of->gpu); *celsius = 60; return OK; }
int nvmlDeviceGetUtilizationRates(Device *of, unsigned percent[2])
{ BEGIN(of->gpu); percent[0] = 97, percent[1] = 50; return *slice_of(of->gpu) ? NOT_SUPPORTED : OK; }

int nvmlDeviceGetComputeRunningProcesses_v3(Device *of, unsigned *count, Process *found)
{
    BEGIN(of->gpu);
    const char *pids = text_of(of->gpu, "pids", "");
    unsigned n = 0, room = *count;
    for (char *end; strtoul(pids, &end, 10) && end != pids; pids = end, n++)
        if (found && n < room)
            found[n] = (Process){strtoul(pids, NULL, 10), 1ull << 30, ~0u, ~0u};
    *count = n;
    return n > room ? INSUFFICIENT_SIZE : OK;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(Device *of, unsigned *count, Process *found)
{ (void)found; BEGIN(of->gpu); *count = 0; return OK; }

int nvmlDeviceGetMigMode(Device *of, unsigned *current, unsigned *pending)
{ BEGIN(of->gpu); *current = *pending = *slice_of(of->gpu) != 0; return OK; }
GIVES(nvmlDeviceGetMaxMigDeviceCount, unsigned, *slice_of(of->gpu) ? 7 : 0)
GIVES(nvmlDeviceIsMigDeviceHandle, unsigned, of->is_slice)
int nvmlDeviceGetMigDeviceHandleByIndex(Device *of, unsigned index, Device **found)
{ BEGIN(of->gpu); *found = device(of->gpu, 1); return index || !*slice_of(of->gpu) ? NOT_FOUND : OK; }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device *of, Device **found)
{ BEGIN(of->gpu); *found = device(of->gpu, 0); return of->is_slice ? OK : INVALID_ARGUMENT; }
