package io.fluxccl.transport.ethernet;

import io.netty.buffer.AbstractReferenceCountedByteBuf;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.UnpooledByteBufAllocator;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.FileChannel;
import java.nio.channels.GatheringByteChannel;
import java.nio.channels.ScatteringByteChannel;
import java.util.Objects;
import org.agrona.UnsafeApi;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * A range of memory, given by its address, as a Netty buffer: sockets read and write it in place.
 * Does not own the memory. Made once and pointed at one range after the other; between {@link
 * #point} and its last release it belongs to who pointed it. Only what sockets need is supported:
 * it does not grow, and can't be copied or freed.
 */
final class MemoryWindow extends AbstractReferenceCountedByteBuf {
  /** The longest range. */
  static final int MAX_LENGTH = 1 << 20;

  private static final long ADDRESS_FIELD =
      UnsafeApi.objectFieldOffset(java.nio.Buffer.class, "address");
  private static final long CAPACITY_FIELD =
      UnsafeApi.objectFieldOffset(java.nio.Buffer.class, "capacity");

  /** Told when a window is released for the last time, and may be pointed again. */
  interface Owner {
    void released(MemoryWindow window);
  }

  private final Owner owner;
  private final UnsafeBuffer view = new UnsafeBuffer(0, 0);
  private long address;
  private int capacity;
  private ByteBuffer nioView;

  MemoryWindow(Owner owner) {
    super(MAX_LENGTH);
    this.owner = Objects.requireNonNull(owner);
  }

  /** Points an idle window at a range, with nothing readable and all of it writable. */
  MemoryWindow point(long address, int length) {
    if (length < 0 || length > MAX_LENGTH) {
      throw new IndexOutOfBoundsException("length=" + length + " maximum=" + MAX_LENGTH);
    }
    this.address = address;
    this.capacity = length;
    view.wrap(address, length);
    resetRefCnt();
    setIndex(0, 0);
    return this;
  }

  /** The range as a bounds-checked buffer; valid as long as the window points at it. */
  UnsafeBuffer view() {
    return view;
  }

  @Override
  protected void deallocate() {
    owner.released(this);
  }

  @Override
  public int capacity() {
    return capacity;
  }

  @Override
  public ByteBuf capacity(int newCapacity) {
    throw new UnsupportedOperationException("a window does not grow or shrink");
  }

  @Override
  public ByteBufAllocator alloc() {
    return UnpooledByteBufAllocator.DEFAULT;
  }

  @Override
  @SuppressWarnings("deprecation")
  public ByteOrder order() {
    return ByteOrder.BIG_ENDIAN;
  }

  @Override
  public ByteBuf unwrap() {
    return null;
  }

  @Override
  public boolean isDirect() {
    return true;
  }

  @Override
  public boolean isContiguous() {
    return true;
  }

  @Override
  public boolean hasArray() {
    return false;
  }

  @Override
  public byte[] array() {
    throw new UnsupportedOperationException("memory by address has no array");
  }

  @Override
  public int arrayOffset() {
    throw new UnsupportedOperationException("memory by address has no array");
  }

  @Override
  public boolean hasMemoryAddress() {
    return true;
  }

  @Override
  public long memoryAddress() {
    return address;
  }

  @Override
  public int nioBufferCount() {
    return 1;
  }

  @Override
  public ByteBuffer internalNioBuffer(int index, int length) {
    checkIndex(index, length);
    ByteBuffer nio = nioView;
    if (nio == null) {
      // A view of its own with room for the longest range; from then on only its address moves.
      nio = ByteBuffer.allocateDirect(1).duplicate();
      UnsafeApi.putInt(nio, CAPACITY_FIELD, MAX_LENGTH);
      nioView = nio;
    }
    UnsafeApi.putLong(nio, ADDRESS_FIELD, address);
    nio.clear().position(index).limit(index + length);
    return nio;
  }

  @Override
  public ByteBuffer nioBuffer(int index, int length) {
    return internalNioBuffer(index, length).slice();
  }

  @Override
  public ByteBuffer[] nioBuffers(int index, int length) {
    return new ByteBuffer[] {nioBuffer(index, length)};
  }

  @Override
  public int setBytes(int index, ScatteringByteChannel in, int length) throws IOException {
    try {
      return in.read(internalNioBuffer(index, length));
    } catch (ClosedChannelException e) {
      // What Netty expects of a buffer whose channel is closed: the end of the stream.
      return -1;
    }
  }

  @Override
  public int setBytes(int index, FileChannel in, long position, int length) throws IOException {
    return in.read(internalNioBuffer(index, length), position);
  }

  @Override
  public int setBytes(int index, InputStream in, int length) throws IOException {
    byte[] bytes = in.readNBytes(length);
    setBytes(index, bytes, 0, bytes.length);
    return bytes.length == 0 && length > 0 ? -1 : bytes.length;
  }

  @Override
  public int getBytes(int index, GatheringByteChannel out, int length) throws IOException {
    return out.write(internalNioBuffer(index, length));
  }

  @Override
  public int getBytes(int index, FileChannel out, long position, int length) throws IOException {
    return out.write(internalNioBuffer(index, length), position);
  }

  @Override
  public ByteBuf getBytes(int index, OutputStream out, int length) throws IOException {
    byte[] bytes = new byte[length];
    getBytes(index, bytes, 0, length);
    out.write(bytes);
    return this;
  }

  @Override
  public ByteBuf getBytes(int index, byte[] target, int targetIndex, int length) {
    checkDstIndex(index, length, targetIndex, target.length);
    view.getBytes(index, target, targetIndex, length);
    return this;
  }

  @Override
  public ByteBuf getBytes(int index, ByteBuffer target) {
    checkIndex(index, target.remaining());
    view.getBytes(index, target, target.remaining());
    return this;
  }

  @Override
  public ByteBuf getBytes(int index, ByteBuf target, int targetIndex, int length) {
    target.setBytes(targetIndex, internalNioBuffer(index, length));
    return this;
  }

  @Override
  public ByteBuf setBytes(int index, byte[] source, int sourceIndex, int length) {
    checkSrcIndex(index, length, sourceIndex, source.length);
    view.putBytes(index, source, sourceIndex, length);
    return this;
  }

  @Override
  public ByteBuf setBytes(int index, ByteBuffer source) {
    checkIndex(index, source.remaining());
    view.putBytes(index, source, source.remaining());
    return this;
  }

  @Override
  public ByteBuf setBytes(int index, ByteBuf source, int sourceIndex, int length) {
    source.getBytes(sourceIndex, internalNioBuffer(index, length));
    return this;
  }

  @Override
  public ByteBuf copy(int index, int length) {
    return alloc().directBuffer(length, length).writeBytes(internalNioBuffer(index, length));
  }

  @Override
  protected byte _getByte(int index) {
    return view.getByte(index);
  }

  @Override
  protected short _getShort(int index) {
    return view.getShort(index, ByteOrder.BIG_ENDIAN);
  }

  @Override
  protected short _getShortLE(int index) {
    return view.getShort(index, ByteOrder.LITTLE_ENDIAN);
  }

  @Override
  protected int _getUnsignedMedium(int index) {
    return (view.getShort(index, ByteOrder.BIG_ENDIAN) & 0xffff) << 8
        | (view.getByte(index + 2) & 0xff);
  }

  @Override
  protected int _getUnsignedMediumLE(int index) {
    return (view.getShort(index, ByteOrder.LITTLE_ENDIAN) & 0xffff)
        | (view.getByte(index + 2) & 0xff) << 16;
  }

  @Override
  protected int _getInt(int index) {
    return view.getInt(index, ByteOrder.BIG_ENDIAN);
  }

  @Override
  protected int _getIntLE(int index) {
    return view.getInt(index, ByteOrder.LITTLE_ENDIAN);
  }

  @Override
  protected long _getLong(int index) {
    return view.getLong(index, ByteOrder.BIG_ENDIAN);
  }

  @Override
  protected long _getLongLE(int index) {
    return view.getLong(index, ByteOrder.LITTLE_ENDIAN);
  }

  @Override
  protected void _setByte(int index, int value) {
    view.putByte(index, (byte) value);
  }

  @Override
  protected void _setShort(int index, int value) {
    view.putShort(index, (short) value, ByteOrder.BIG_ENDIAN);
  }

  @Override
  protected void _setShortLE(int index, int value) {
    view.putShort(index, (short) value, ByteOrder.LITTLE_ENDIAN);
  }

  @Override
  protected void _setMedium(int index, int value) {
    view.putShort(index, (short) (value >> 8), ByteOrder.BIG_ENDIAN);
    view.putByte(index + 2, (byte) value);
  }

  @Override
  protected void _setMediumLE(int index, int value) {
    view.putShort(index, (short) value, ByteOrder.LITTLE_ENDIAN);
    view.putByte(index + 2, (byte) (value >> 16));
  }

  @Override
  protected void _setInt(int index, int value) {
    view.putInt(index, value, ByteOrder.BIG_ENDIAN);
  }

  @Override
  protected void _setIntLE(int index, int value) {
    view.putInt(index, value, ByteOrder.LITTLE_ENDIAN);
  }

  @Override
  protected void _setLong(int index, long value) {
    view.putLong(index, value, ByteOrder.BIG_ENDIAN);
  }

  @Override
  protected void _setLongLE(int index, long value) {
    view.putLong(index, value, ByteOrder.LITTLE_ENDIAN);
  }
}
