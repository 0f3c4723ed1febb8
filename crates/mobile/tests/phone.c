/*
 * Plays the app of a phone: what docs/PHONE.md asks of one, call by call, without Java. A test of the whole program compiles
 * it and speaks for the user and for the system: by lines on standard input, one command each. What the library says goes
 * to standard output.
 *
 *   invitation LINE    joins by an invitation, with a key that was made at the start
 *   config JSON        connects again with the same key
 *   network JSON       a network is there; number N is the interface wanN
 *   remove N           it is gone
 *   tun NAME           opens a TUN, as VpnService.Builder.establish does, and hands it over
 *   pause, resume, status, stop
 *   free               frees the tunnel; another one may be made
 *   exit
 *
 * Each is answered with "done CODE MESSAGE", and events come as "event JSON" at any time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/if_tun.h>

#include "ropewalk.h"

/* What the app keeps. */
struct phone {
    uint8_t secret_key[ROPEWALK_KEY_BYTES];
    ropewalk_tunnel *tunnel;
};

/* Says one line, whole, whichever thread speaks. */
static void say(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    flockfile(stdout);
    vprintf(format, values);
    putchar('\n');
    fflush(stdout);
    funlockfile(stdout);
    va_end(values);
}

/* In place of VpnService.protect and Network.bindSocket. */
static int bind_socket(void *context, int fd, uint64_t network)
{
    char name[IFNAMSIZ];
    (void)context;
    snprintf(name, sizeof name, "wan%u", (unsigned)(network % 100));
    if (setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, (socklen_t)strlen(name)) != 0)
        return errno;
    return 0;
}

static void on_event(void *context, const char *event, size_t length)
{
    (void)context;
    say("event %.*s", (int)length, event);
}

static int open_tun(const char *name)
{
    struct ifreq request;
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -1;
    memset(&request, 0, sizeof request);
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    snprintf(request.ifr_name, IFNAMSIZ, "%.*s", IFNAMSIZ - 1, name);
    if (ioctl(fd, TUNSETIFF, &request) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Makes a tunnel and starts it. */
static ropewalk_code begin(struct phone *phone, const char *config, const char *invitation, ropewalk_error *error)
{
    ropewalk_options options;
    ropewalk_code code;

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.secret_key = phone->secret_key;
    options.secret_key_length = sizeof phone->secret_key;
    options.config = config;
    options.config_length = strlen(config);
    options.invitation = invitation;
    options.invitation_length = invitation ? strlen(invitation) : 0;
    options.bind_socket = bind_socket;
    options.on_event = on_event;
    options.context = phone;
    code = ropewalk_tunnel_new(&options, &phone->tunnel, error);
    if (code == ROPEWALK_OK)
        code = ropewalk_tunnel_start(phone->tunnel, error);
    return code;
}

static ropewalk_code join(struct phone *phone, const char *line, ropewalk_error *error)
{
    char config[8192];
    size_t length;
    ropewalk_code code = ropewalk_read_invitation(line, strlen(line), config, sizeof config, &length, error);

    if (code != ROPEWALK_OK)
        return code;
    say("config %s", config);
    return begin(phone, config, line, error);
}

static ropewalk_code hand_over_tun(struct phone *phone, const char *name, ropewalk_error *error)
{
    int fd = open_tun(name);
    ropewalk_code code;

    if (fd < 0) {
        error->code = ROPEWALK_SYSTEM;
        snprintf(error->message, sizeof error->message, "no TUN: %s", strerror(errno));
        return ROPEWALK_SYSTEM;
    }
    code = ropewalk_tunnel_set_tun(phone->tunnel, fd, error);
    if (code != ROPEWALK_OK)
        close(fd);
    return code;
}

static ropewalk_code tell_status(struct phone *phone, ropewalk_error *error)
{
    static char status[1 << 18];
    size_t length;
    ropewalk_code code = ropewalk_tunnel_status(phone->tunnel, status, sizeof status, &length, error);

    if (code == ROPEWALK_OK)
        say("status %s", status);
    return code;
}

static ropewalk_code obey(struct phone *phone, const char *command, const char *rest, ropewalk_error *error)
{
    ropewalk_code code;

    if (strcmp(command, "invitation") == 0)
        return join(phone, rest, error);
    if (strcmp(command, "config") == 0)
        return begin(phone, rest, NULL, error);
    if (strcmp(command, "network") == 0)
        return ropewalk_tunnel_set_network(phone->tunnel, rest, strlen(rest), error);
    if (strcmp(command, "remove") == 0)
        return ropewalk_tunnel_remove_network(phone->tunnel, strtoull(rest, NULL, 10), error);
    if (strcmp(command, "tun") == 0)
        return hand_over_tun(phone, rest, error);
    if (strcmp(command, "pause") == 0)
        return ropewalk_tunnel_pause(phone->tunnel, error);
    if (strcmp(command, "resume") == 0)
        return ropewalk_tunnel_resume(phone->tunnel, error);
    if (strcmp(command, "status") == 0)
        return tell_status(phone, error);
    if (strcmp(command, "stop") == 0)
        return ropewalk_tunnel_stop(phone->tunnel, error);
    if (strcmp(command, "free") == 0) {
        code = ropewalk_tunnel_free(phone->tunnel, error);
        phone->tunnel = NULL;
        return code;
    }
    error->code = ROPEWALK_ARGUMENT;
    snprintf(error->message, sizeof error->message, "no such command");
    return ROPEWALK_ARGUMENT;
}

int main(void)
{
    static char line[1 << 16];
    struct phone phone;
    uint8_t public_key[ROPEWALK_KEY_BYTES];
    ropewalk_error error;

    memset(&phone, 0, sizeof phone);
    if (ropewalk_interface_version() != ROPEWALK_INTERFACE_VERSION) {
        fprintf(stderr, "the library has another version than the header\n");
        return 1;
    }
    if (ropewalk_make_key(phone.secret_key, sizeof phone.secret_key, public_key, sizeof public_key, &error) !=
        ROPEWALK_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    while (fgets(line, sizeof line, stdin)) {
        char *rest;

        line[strcspn(line, "\n")] = '\0';
        rest = strchr(line, ' ');
        if (rest)
            *rest++ = '\0';
        if (strcmp(line, "exit") == 0)
            break;
        memset(&error, 0, sizeof error);
        obey(&phone, line, rest ? rest : "", &error);
        say("done %d %s", (int)error.code, error.message);
    }
    ropewalk_tunnel_free(phone.tunnel, NULL);
    explicit_bzero(phone.secret_key, sizeof phone.secret_key);
    return 0;
}
