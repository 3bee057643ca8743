package waypost.interop;

import com.google.protobuf.StringValue;
import com.google.protobuf.Struct;
import com.google.protobuf.Value;
import com.google.protobuf.util.JsonFormat;
import io.grpc.CallOptions;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import java.io.IOException;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Calls one target at a steady rate until SIGTERM, and writes down each call as it ends. Says "called"
 * after the first answer.
 */
final class Caller {
  private static final JsonFormat.Printer JSON = JsonFormat.printer().omittingInsignificantWhitespace();

  private final ManagedChannel channel;
  private final Writer out;
  private final long deadlineNanos;
  /** From one call of a worker to its next, at least. */
  private final long paceNanos;

  private final CountDownLatch stop = new CountDownLatch(1);
  private final AtomicBoolean answered = new AtomicBoolean();

  static void run(Main.Flags flags) throws Exception {
    int concurrency = (int) flags.number("--concurrency", 4);
    Caller caller = new Caller(flags, concurrency);
    try {
      caller.hello(
          CallOptions.DEFAULT
              .withDeadlineAfter(nanos(flags.number("--first", 30)), TimeUnit.NANOSECONDS)
              .withWaitForReady());
    } catch (StatusRuntimeException error) {
      System.err.println("no first answer: " + error.getStatus());
      System.exit(1);
    }
    List<Thread> workers = new ArrayList<>();
    for (int i = 0; i < concurrency; i++) {
      // One after the other: together they would call in bursts, with nothing in flight between.
      long first = caller.paceNanos * i / concurrency;
      workers.add(new Thread(() -> caller.work(first)));
    }
    // A machine that was asked to end by a signal says so in its exit code, unless it is halted.
    Runtime.getRuntime()
        .addShutdownHook(
            new Thread(
                () -> {
                  caller.stop.countDown();
                  workers.forEach(Caller::join);
                  Runtime.getRuntime().halt(0);
                }));
    workers.forEach(Thread::start);
    // The hook ends the machine. A main thread that returned would begin to destroy it at the same moment.
    Thread.currentThread().join();
  }

  private Caller(Main.Flags flags, int concurrency) throws IOException {
    String target = flags.text("--target");
    channel = Grpc.newChannelBuilder(target, InsecureChannelCredentials.create()).build();
    Path file = Path.of(flags.text("--out"));
    out = Files.newBufferedWriter(file, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    deadlineNanos = nanos(flags.number("--deadline", 5));
    paceNanos = nanos(concurrency / flags.number("--rate", 100));
  }

  /** Makes one call at a time, the first after {@code rest} nanoseconds. */
  private void work(long rest) {
    try {
      while (!stop.await(Math.max(0, rest), TimeUnit.NANOSECONDS)) {
        long began = System.nanoTime();
        callOnce();
        rest = paceNanos - (System.nanoTime() - began);
      }
    } catch (IOException | InterruptedException error) {
      error.printStackTrace();
      Runtime.getRuntime().halt(1);
    }
  }

  private void callOnce() throws IOException {
    Struct.Builder line = Struct.newBuilder().putFields("start", number(epoch()));
    try {
      String by =
          hello(CallOptions.DEFAULT.withDeadlineAfter(deadlineNanos, TimeUnit.NANOSECONDS));
      line.putFields("ok", Value.newBuilder().setBoolValue(true).build());
      line.putFields("by", text(by));
      if (answered.compareAndSet(false, true)) {
        System.out.println("called");
      }
    } catch (StatusRuntimeException error) {
      Status status = error.getStatus();
      line.putFields("ok", Value.newBuilder().setBoolValue(false).build());
      line.putFields("code", text(status.getCode().name()));
      line.putFields("why", text(String.valueOf(status.getDescription())));
    }
    line.putFields("end", number(epoch()));
    synchronized (out) {
      out.write(JSON.print(line) + "\n");
      out.flush();
    }
  }

  private String hello(CallOptions options) {
    StringValue request = StringValue.getDefaultInstance();
    return ClientCalls.blockingUnaryCall(channel, Main.HELLO, options, request).getValue();
  }

  private static void join(Thread worker) {
    try {
      worker.join();
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  private static Value number(double number) {
    return Value.newBuilder().setNumberValue(number).build();
  }

  private static Value text(String text) {
    return Value.newBuilder().setStringValue(text).build();
  }

  /** Seconds since the epoch. */
  private static double epoch() {
    Instant now = Instant.now();
    return now.getEpochSecond() + now.getNano() / 1e9;
  }

  private static long nanos(double seconds) {
    return (long) (seconds * 1e9);
  }
}
