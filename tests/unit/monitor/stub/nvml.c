/* A stand-in for NVIDIA's libnvidia-ml.so.1: its numbers are formulas of the GPU's index i.
 *
 *   busy 10 (i + 1) %        memory used (i + 1) GiB, +512 MiB reserved in version 1
 *   memory busy 5 (i + 1) %  power 100000 + 1000 i mW     temperature 40 + i
 *   SM clock 1000 + 100 i    memory clock 2000 + 100 i    throttle reasons (1 << i) | 4
 *   PCIe sent 100 (i + 1) KB/s, received 200 (i + 1) KB/s
 *
 * STUB_GPUS in the environment is the number of GPUs. The stub_* functions, which tests call
 * through ctypes, take things away and count the calls.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
       DRIVER_NOT_LOADED = 9, LOST = 15, UNKNOWN = 999, MOST = 16 };
enum { UTILIZATION, MEMORY_V2, MEMORY_V1, POWER, CLOCK, TEMPERATURE, THROTTLE, PCIE, FIELDS };

struct gpu { int index; };

static struct gpu gpus[MOST];
static int initialized, unloaded, lost[MOST], failure[MOST][FIELDS], calls[MOST][FIELDS];

void stub_lose(int i, int is_lost) { lost[i] = is_lost; }
void stub_fail(int i, int field, int code) { failure[i][field] = code; }
void stub_unload(int is_unloaded) { unloaded = is_unloaded; initialized = 0; }
int stub_calls(int i, int field) { return calls[i][field]; }

static int count(void)
{
    const char *text = getenv("STUB_GPUS");
    return text ? atoi(text) : 1;
}

static int enter(struct gpu *gpu, int field)
{
    if (!initialized) return UNINITIALIZED;
    calls[gpu->index][field]++;
    if (lost[gpu->index]) return LOST;
    return failure[gpu->index][field];
}

#define ENTER(field) do { int code = enter(gpu, field); if (code) return code; } while (0)

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    if (unloaded) return DRIVER_NOT_LOADED;
    initialized++;  /* as in NVIDIA's: the last of as many shutdowns counts */
    for (int i = 0; i < MOST; i++) gpus[i].index = i;
    return OK;
}

int nvmlShutdown(void)
{
    if (!initialized) return UNINITIALIZED;
    initialized--;
    return OK;
}

const char *nvmlErrorString(int code)
{
    static char text[32];
    snprintf(text, sizeof text, "stub error %d", code);
    return text;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    if (!initialized) return UNINITIALIZED;
    snprintf(text, size, "550.54.15");
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *out)
{
    if (!initialized) return UNINITIALIZED;
    *out = (unsigned)count();
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, struct gpu **out)
{
    if (!initialized) return UNINITIALIZED;
    if ((int)i >= count()) return INVALID;
    if (lost[i]) return LOST;
    *out = &gpus[i];
    return OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct gpu **out)
{
    int i;
    if (!initialized) return UNINITIALIZED;
    if (sscanf(uuid, "GPU-stub-%d", &i) != 1 || i >= count()) return NOT_FOUND;
    if (lost[i]) return LOST;
    *out = &gpus[i];
    return OK;
}

int nvmlDeviceGetName(struct gpu *gpu, char *text, unsigned size)
{
    snprintf(text, size, "Stub %d", gpu->index);
    return OK;
}

int nvmlDeviceGetUUID(struct gpu *gpu, char *text, unsigned size)
{
    snprintf(text, size, "GPU-stub-%d", gpu->index);
    return OK;
}

int nvmlDeviceGetUtilizationRates(struct gpu *gpu, unsigned out[2])
{
    ENTER(UTILIZATION);
    out[0] = 10u * (unsigned)(gpu->index + 1);
    out[1] = 5u * (unsigned)(gpu->index + 1);
    return OK;
}

int nvmlDeviceGetMemoryInfo(struct gpu *gpu, unsigned long long out[3])
{
    ENTER(MEMORY_V1);
    out[0] = 80ull << 30;
    out[2] = ((unsigned long long)(gpu->index + 1) << 30) + (512ull << 20);
    out[1] = out[0] - out[2];
    return OK;
}

struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo_v2(struct gpu *gpu, struct memory_v2 *out)
{
    ENTER(MEMORY_V2);
    out->total = 80ull << 30;
    out->reserved = 512ull << 20;
    out->used = (unsigned long long)(gpu->index + 1) << 30;
    out->free = out->total - out->reserved - out->used;
    return OK;
}

int nvmlDeviceGetPowerUsage(struct gpu *gpu, unsigned *out)
{
    ENTER(POWER);
    *out = 100000u + 1000u * (unsigned)gpu->index;
    return OK;
}

int nvmlDeviceGetEnforcedPowerLimit(struct gpu *gpu, unsigned *out)
{
    *out = 700000u + 1000u * (unsigned)gpu->index;
    return OK;
}

int nvmlDeviceGetClockInfo(struct gpu *gpu, unsigned kind, unsigned *out)
{
    ENTER(CLOCK);
    *out = (kind == 2 ? 2000u : 1000u) + 100u * (unsigned)gpu->index;
    return OK;
}

int nvmlDeviceGetMaxClockInfo(struct gpu *gpu, unsigned kind, unsigned *out)
{
    *out = (kind == 2 ? 2900u : 1900u) + 100u * (unsigned)gpu->index;
    return OK;
}

int nvmlDeviceGetTemperature(struct gpu *gpu, unsigned sensor, unsigned *out)
{
    (void)sensor;
    ENTER(TEMPERATURE);
    *out = 40u + (unsigned)gpu->index;
    return OK;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct gpu *gpu, unsigned long long *out)
{
    ENTER(THROTTLE);
    *out = (1ull << gpu->index) | 4ull;
    return OK;
}

int nvmlDeviceGetPcieThroughput(struct gpu *gpu, unsigned counter, unsigned *out)
{
    ENTER(PCIE);
    *out = (counter == 1 ? 200u : 100u) * (unsigned)(gpu->index + 1);
    return OK;
}
